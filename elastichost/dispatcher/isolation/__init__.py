"""What keeps jobs apart, and measures them.

Modules:
    tiers                           what is there on this host, and used
    limits, delegation, cgroups     cgroups, where they are delegated
    resctrl, control_files, power   memory bandwidth
    mps, gpu_meter                  GPUs
    process_meter                   processes of all jobs
"""
