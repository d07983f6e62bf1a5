"""What NVML, the library of NVIDIA's driver, tells about the GPUs of this machine.

Modules:
    devices the GPUs that a process may use: names, memory, UUIDs, cores near them
    answers tells a figure that a GPU does not have from a GPU that does not answer
    use     the use of each GPU by process: time and memory
    state   the state of each GPU: memory, traffic over the bus, clock, power, temperature, why it is slowed
    report  joins both to the status of each GPU of a run
"""
