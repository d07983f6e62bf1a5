"""This machine: what it lends to a process, and what processes use.

Modules:
    inventory       cores, memory and GPUs that this process may use
    procfs          what the kernel says of a process
    process_meter   what the processes of a run cost, once a second; metrics.db
    priority        scheduling priority of a process
    prctl           signals and orphans of a process, as the kernel handles them
    cpu_features    which instructions the processor has
    kernel_cache    where compiled kernels are kept
    machine         page size and size of the address space
    affinity        moves a running process to other cores
    own_directory   whether a directory is this user's alone
    stop_signals    SIGINT and SIGTERM, as facts for a loop
    environment     locale, limits and directories that a start depends on
"""
