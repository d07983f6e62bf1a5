"""Starts processes and reports how they end: the fork server and its client.

Modules:
    launcher             the interface of all launchers, and the functions that processes call, by name
    fork_server          a process that imports the heavy libraries once, then forks a process for each request
    fork_server_client   the launcher of this host: the supervisor's end of a fork server
    servers              starts a fork server, or forks it from a process that has imported torch
    child                what a forked process does before it calls its function
    messages             what the supervisor and the fork server send to each other
    events               what a launcher reports about processes
    host_paths           the directories and addresses that the processes of a host use
    write_back           has a model in memory of a GPU written back
    arena_reaper         removes the arena of a supervisor that died, after some seconds
    loggers              the processes of experiment loggers
    poll                 waits for any number of descriptors
    shutdown             the end of a run: ends its processes and removes its directories
"""
