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
    environment     locale, limits and directories that a start depends on
"""
