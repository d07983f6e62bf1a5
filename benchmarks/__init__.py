"""The validation suite: what is measured, of what, against whom. `elastichost bench` lists the benchmarks.

registry            benchmarks by name
harness             what all share: how a benchmark is declared and run, statistics, tables, processes
training            whole runs: speed by access and workers, quality, two hosts by the speed of their link
data_plane          samples a second against other ways to train the same model
peers               these other ways
arena               the index of dynamic tables, growth, memory, snapshots
reader              reading, from files to tensors
recovery            what the death of a process costs; how soon another worker trains
ray_recovery        the same on a Ray cluster
hostile             a run whose gates are attacked
memory_estimate     how well the peak memory of a job is foreseen
colocate            many jobs on this host
colocate_simulated  the same on simulated hosts
tuner               predictions and decisions of the tuner
simulator           clusters and hosts in virtual time
"""
