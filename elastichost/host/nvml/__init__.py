"""What NVML, the library of NVIDIA's driver, tells about the GPUs of this machine.

Modules:
    use     the use of each GPU by process: time and memory
    state   the state of each GPU: memory, traffic over the bus, clock, power, temperature, why it is slowed
    report  joins both to the status of each GPU of a run
"""
