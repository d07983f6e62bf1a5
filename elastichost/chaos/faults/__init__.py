"""The faults that `elastichost chaos` injects: faults of processes, faults of messages, and bad input.

Modules:
    process_faults   one class for each fault of a process, and the registry of all faults
    source_faults    faults of the source of training data
    source_server    a web server for training data that has such faults
    processes        finds and signals the processes of a run
    message_faults   which messages are dropped, delayed or changed; pure
    proxy            drops, delays and changes them
    bad_input        bad input for the command line, and garbage for the sockets of a run
"""
