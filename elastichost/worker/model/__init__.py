"""The user's model in a worker.

Modules:
    embedding                     replaces torchrec collections by lookups in the arena
    bags                          a collection's lookup as one kernel call, and its backward pass
    fusion                        faster versions of DLRM's modules, with fewer passes over memory
    interaction_kernels, interaction_tiles   the dot interaction; in bfloat16 on AMX
    dense_layers, dense_kernels   linear layers that compute in bfloat16
    dense_vector                  the dense part of the model as one flat vector
    gradient_check                checks that loss and gradients are finite
    device                        the CPU or GPU that computes the dense part
"""
