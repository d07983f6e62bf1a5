"""Compares policies on thousands of jobs of a simulated cluster.

benchmark  `python -m benchmarks.tuner.simulated`
conditions/  kinds of requests, seeds, hosts, traces
plan       policies, arms, jobs, hosts, load
runs       simulates them
figures    completion times, utilisation, intervals over seeds
columns    all policies under one condition, and the best of all rivals
health     stragglers, hot PS, memory: detection, and the gain from countermeasures
results    all parts together
tables     printed tables
scale      the largest clusters: `python -m benchmarks.tuner.simulated.scale`
"""
