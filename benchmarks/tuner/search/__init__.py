"""How soon the tuner finds the best configuration of a job, in worlds that are known.

benchmark         figures, tables, aims; `python -m benchmarks.tuner.search`
world             worlds, families, jobs
simulated_worlds  of the queue simulator
recorded_worlds   of recorded grids
arms              the tuner's own policy, random search, Bayesian optimisation
course            a run of a policy in a world
runs              all runs, and what became of each
"""
