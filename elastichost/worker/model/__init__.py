"""The user's model in a worker.

Modules:
    embedding                     replaces torchrec collections by lookups in the arena
    bags                          a collection's lookup as one kernel call, and its backward pass
    fusion                        faster versions of DLRM's modules, with fewer passes over memory
    interaction_kernels           the dot interaction
    interaction_tiles             the same in bfloat16 on AMX
    dense_layers, dense_kernels   linear layers with bias and ReLU in fewer passes, in float32 or bfloat16
    weight_gradient               the gradient of a weight, written into the mailbox with direct access
    dense_vector                  the dense part of the model as one flat vector
    kernel_calls                  how modules call kernels of another compiler
    gradient_check                checks that loss and gradients are finite
    device                        the CPU or GPU that computes the dense part
"""
