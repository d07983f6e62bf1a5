"""The CUDA driver behind one small interface, and what the probes run on it.

interface    the calls that the probes need
driver       the interface on cuda.bindings
fake_driver  the interface on host memory, to try the probes without a GPU
kernels      compiling kernels.cu, and the functions of rows.c
triton_add   a kernel in Triton
host_memory  files on tmpfs and their mappings
mounts       file systems in memory: sizes, huge pages
"""
