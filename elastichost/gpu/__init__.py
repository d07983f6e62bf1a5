"""The part of training that runs on a GPU: kernels in Triton, and a step captured into a CUDA graph.

Modules with kernels are imported only by a process that has a GPU: Triton comes with torch's CUDA build. On a machine
without GPU, TRITON_INTERPRET=1 runs the kernels on the CPU; tests do so.

Modules:
    availability         whether this process can use the kernels
    compiled             how kernels are made
    bag_kernels          pooled lookup, and the list of a batch's lookups
    row_updates          gradients of equal rows are summed, and rows updated
    interaction_kernels  the dot interaction of a DLRM
    dense_kernels        the mask of a ReLU and the gradient of a bias
    dense_layers         linear layers with bfloat16 products
    dense_updates        the dense optimizers
    lookup               the lookup of one embedding collection
    row_placement        where the rows of a collection lie
    memory/              memory of the host that the GPU may use, and memory of the GPU that outlives its process
    step                 one training step as a CUDA graph
    step_inputs          the tensors of one batch
"""
