"""The faults that `elastichost chaos` injects: faults of processes, faults of messages, and bad input.

Modules:
    process_faults   one class for each fault of a process, and the registry of all faults
    gpu_faults       faults of a model in memory of a GPU
    source_faults    faults of the source of training data
    source_process   a process that stands for the source and has such faults
    source_server    a web server for training data
    source_proxy     a TCP proxy before a server of training data
    source_of_job    which of the two stands before the data of a job
    processes        finds and signals the processes of a run
    message_faults   which messages are dropped, delayed or changed; pure
    proxy            drops, delays and changes them
    bad_input        bad input for the command line, and garbage for the sockets of a run
"""
