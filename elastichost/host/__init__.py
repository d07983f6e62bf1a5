"""This machine: the resources that a process may use, and the resources that processes use.

Modules:
    inventory       cores, memory and GPUs that this process may use
    cgroup          the limits of this process' cgroup and of the groups around it
    procfs          the state of a process, from /proc
    process_meter   measures the processes of a run once a second; metrics.db
    priority        scheduling priority of a process
    prctl           settings of a process through prctl(2): signals, orphans, name
    cpu_features    the CPU features on which the bits of results depend
    kernel_cache    the directory of compiled kernels
    torch_packages  whether torch, torchrec and fbgemm belong together
    machine         page size and size of the address space
    affinity        moves a running process to other cores
    own_directory   checks that a directory belongs to this user alone
    nvml            what NVML tells about GPUs: use by process, state
    stop_signals    counts SIGINT and SIGTERM for a loop
    environment     checks of the address space, and Python's UTF-8 mode
"""
