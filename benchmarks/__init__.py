"""The benchmarks of elastichost. `elastichost bench` lists them.

registry            benchmarks by name
workload            shapes of models, their samples and job files
harness             shared parts: declaring and running a benchmark, statistics, tables, processes
training            whole runs: speed by access and workers, quality, two hosts by the speed of their link
data_plane          samples per second, compared with other systems that train the same model
peers               the other systems
arena               the index of dynamic tables, growth, memory, snapshots
reader              reading, from files to tensors
input               the tuner of the input, against the best knobs and other pipelines
models              quality of multi-task, sequence and two-tower models, beside a plain loop
recovery            cost of the death of a process; time until an added worker trains
ray_recovery        cost of the death of a node of a Ray cluster
search              a search, beside its trials one after another
serving             requests per second, beside FastAPI
hostile             a run under attack on its sockets
memory_estimate     accuracy of the estimate of peak memory
colocate            many jobs on this host
colocate_simulated  many jobs on simulated hosts
tuner               predictions and decisions of the tuner
gpu                 what a GPU does with rows, processes and kills
simulator           simulated clusters and hosts in virtual time
"""
