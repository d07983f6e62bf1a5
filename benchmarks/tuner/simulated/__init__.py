"""Compares policies on thousands of jobs of a simulated cluster.

benchmark  `python -m benchmarks.tuner.simulated`
plan       policies, arms, jobs, hosts, load
requests   what users ask for: at random, sensible, well tuned
seeds      of the constants, and of the tables
runs       simulates them
figures    completion times, utilisation, intervals over seeds
columns    all policies under one condition, and the best of all rivals
health     stragglers, hot PS, memory: detection, and the gain from countermeasures
results    all parts together
tables     printed tables
"""
