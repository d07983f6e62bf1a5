"""Measures how soon the tuner finds the best configuration of a job, in worlds with known speeds.

benchmark         figures, tables, aims; `python -m benchmarks.tuner.search`
world             worlds, families, jobs
simulated_worlds  worlds of the queue simulator
recorded_worlds   worlds of recorded grids
arms              the tuner's policy, random search, Bayesian optimisation
course            a run of a policy in a world
runs              all runs and their results
"""
