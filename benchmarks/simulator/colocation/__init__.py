"""Many small jobs on one host in virtual time, under the decisions of the real dispatcher.

calibration   every number of the simulated host, with its source
jobs          batches of jobs: families, modes, growing memory
interference  the true speeds of jobs that run together
beliefs       the dispatcher's estimates of jobs
job_run       one job from the queue to its end
simulation    a batch, from its submission to the end of its last job
"""
