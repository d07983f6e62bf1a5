"""Compares policies on thousands of jobs of a simulated cluster.

benchmark  `python -m benchmarks.tuner.simulated`
plan       policies, arms, jobs, hosts, load
host_mixes kinds of hosts
trace_jobs jobs whose arrivals come from a trace file
runs       simulates them
figures    completion times, utilisation, intervals over seeds
health     stragglers, hot PS, memory: detection, and the gain from countermeasures
results    all parts together
tables     printed tables
scale      the largest clusters: `python -m benchmarks.tuner.simulated.scale`
"""
