"""The tuner of one job.

Modules:
    policy                   looks, fits, decides
    decision                 what it is told, remembers and decides
    profile                  from counts to observations
    candidates, space        which configurations are possible
    choice, trials           what trying another is worth
    ceiling, floor           what no plan exceeds; what is left at once
    frontier, job_frontier   speed against cost
    solvers, reasons         slow imports; words
"""
