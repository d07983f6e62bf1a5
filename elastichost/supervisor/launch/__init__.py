"""How processes come to be: the fork server and its client.

Modules:
    launcher             what every launcher can do, and what is asked of it; what processes execute, by name
    fork_server          imports the heavy libraries once, then forks
    fork_server_client   the supervisor's end of it
    servers              starts a fork server, or forks one from a process that has torch
    child                the first moments of a forked process
    messages, events     what both say to each other; what becomes of processes
    host_paths           where the processes of a host find what is theirs
    arena_reaper         removes the arena of a supervisor that died, after a while
    poll                 waits for any number of descriptors
    shutdown             the end of a run: no process and no shared memory is left
"""
