"""Isolates the jobs of one host from each other, and measures the resources that they use.

Modules:
    tiers             finds and applies every isolation that this host offers; the entry for the dispatcher
    limits            computes what is written to a job's cgroup, and parses what is read from it
    delegation        finds the cgroup that this process may divide, or the reason why there is none
    cgroups           creates a cgroup for each job, limits it, and removes it
    resctrl           counts the memory traffic of each job
    control_files     reads and writes control files of the kernel
    mps               finds the daemon of NVIDIA's Multi-Process Service
    process_meter     measures the CPU time of process trees
    power             measures the memory bandwidth of the host
"""
