"""Is the end of memory seen in time?

benchmark  simulated runs; `python -m benchmarks.tuner.memory`
real_runs  a real job, with and without care
"""
