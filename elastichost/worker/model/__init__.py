"""The user's model in a worker.

Modules:
    embedding                     replaces torchrec collections by lookups in the arena
    bags                          a collection's lookup as one kernel call, and its backward pass
    fusion, interaction_kernels   faster versions of DLRM's modules, with fewer passes over memory
    dense_vector                  the dense part of the model as one flat vector
    gradient_check                checks that loss and gradients are finite
    device                        the CPU or GPU that computes the dense part
"""
