"""Many small jobs on one host, in virtual time, under the dispatcher's own decisions.

calibration   every number of the simulated host, and where it is from
jobs          batches of jobs: families, modes, memory that fills
interference  how fast jobs truly are beside each other
beliefs       what the dispatcher believes of them
job_run       one job from the queue to its end
simulation    a batch, from its submission to the end of its last job
"""
