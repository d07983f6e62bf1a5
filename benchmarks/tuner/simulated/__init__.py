"""Policies on thousands of jobs of a simulated cluster.

benchmark  `python -m benchmarks.tuner.simulated`
plan       policies, arms, jobs, hosts, load
runs       plays them
figures    completion times, utilisation, intervals over seeds
health     stragglers, hot PS, memory: seen or not, and what care is worth
results    all parts together
tables     what is printed
"""
