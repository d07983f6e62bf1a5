"""How well the tuner predicts, decides and shares out: on recorded real runs, in simulation, beside its rivals.

suite          all that needs no quiet machine, part by part
accuracy       models of speed against simulated queues
real           the same on recorded grids of real runs
search         how soon the best configuration is found
simulated      policies on a simulated cluster
memory         is the end of memory seen in time?
emulated       hundreds of emulated workers on this host
live           real runs beside every static plan
stay           does it leave a good run alone, and mend a bad one? In known worlds
stay_worlds    recorded jobs as worlds that stand still
stay_live      the same with real runs
endless_run    a run that trains until it is told to end
recorded_grid  the file of a grid of real runs
grid_record    records one
results        all that was measured, on one page
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # decisions are timed: before numpy is imported
