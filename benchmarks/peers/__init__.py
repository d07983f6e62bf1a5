"""The systems that elastichost is compared with; each module trains one model, as one arm of a benchmark.

common              settings, counters and roles of all peers
host                forks the peers that use torch
torch_parts         the model in plain torch
tbe                 fbgemm's TBE in one process
dmp                 torchrec's DistributedModelParallel
rpc                 a custom parameter server over torch rpc
tensorflow_ps       TensorFlow's ParameterServerStrategy
bare_loop           elastichost's reader and kernels without the runtime
torchrun_elastic    torchrun; its ranks are killed
ray_train_elastic   Ray Train; its workers are killed
"""
