"""The tuner of one job.

Modules:
    policy                   looks, fits, decides
    decision                 what it is told, remembers and decides
    profile                  from counts to observations
    candidates, space        which configurations are possible
    choice, trials           what trying another is worth
    floor, drift             which trials are left at once; whether the speed has changed
    frontier, job_frontier   speed against cost
    solvers, reasons         slow imports; words
"""
