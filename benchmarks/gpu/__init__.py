"""What a GPU does with rows, processes and kills.

device  the CUDA driver, its double, kernels, memory on tmpfs
probes  experiments that decide the design of GPU nodes
"""
