"""Measures whether running out of memory is predicted in time.

benchmark  simulated runs; `python -m benchmarks.tuner.memory`
real_runs  a real job, with and without the memory tuner
"""
