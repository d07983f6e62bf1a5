"""The user's model in a worker.

Modules:
    embedding                     torchrec collections become lookups in the arena
    bags                          a collection's lookup as one kernel call, and its backward pass
    fusion, interaction_kernels   modules of DLRM with fewer passes over memory
    dense_vector                  the dense part as one flat vector
    gradient_check                whether loss and gradients are numbers
    device                        CPU or GPU
"""
