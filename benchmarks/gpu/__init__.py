"""What a GPU does with rows, processes and kills; and the step engine.

device          the CUDA driver, its double, kernels, memory on tmpfs
probes          experiments that decide the design of GPU nodes
engine          the step engine on random batches, with rows in memory of the GPU or of the host
tbe             torchrec's DLRM with fbgemm's TBE, the peer
benchmark       milliseconds a step of both
"""
