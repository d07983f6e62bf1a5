"""Experiments on a machine with a GPU; each module says what it decides. `python -m benchmarks.gpu.probes` runs them.

registry           the probes by name, with their time limits
setting            what a probe is told: its folder, its deadline, its scale
child              processes that speak lines of JSON
environment        P0: the machine and its bandwidths
registration       P1: registering files on tmpfs
coherence          P1: what other processes see of the GPU's writes, and which writes are lost
crash_survival     P2: device memory after the death of its processes
row_access         P3: random rows in device memory and in host memory
kill_in_kernel     P4: writes of a kernel whose process was killed
graph_replay       P5: several processes that replay graphs
start_time         P7: from the start of a process to its first batch
nvml_recording     what NVML answers, idle and busy
"""
