"""Measures the predictions and decisions of the tuner: on recorded real runs, in simulation, compared with rivals.

suite          all parts that do not need a quiet machine
accuracy       errors of speed models on simulated queues
real           errors of speed models on recorded grids of real runs
coverage       coverage of prediction intervals on unseen jobs of the recorded grids
search         number of trials until the best configuration is found
simulated      policies on a simulated cluster
memory         whether running out of memory is predicted in time
emulated       hundreds of emulated workers on this host
live           real runs compared with every static plan
shared_policy  whether the simulator calls the functions of live runs
stay           whether a good run is left alone and a bad one is improved, in simulated worlds
stay_worlds    recorded jobs as worlds with constant speeds
stay_live      `stay` with real runs
endless_run    a run that trains until the caller stops it
recorded_grid  the file of a grid of real runs
grid_record    records a grid of real runs
results        writes all measurements to one page
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # decisions are timed; must be set before the import of numpy
