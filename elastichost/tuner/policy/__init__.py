"""The tuner of one job.

Modules:
    policy                    the tuner: folds samples, fits the model, decides
    decision                  what it is told, remembers and decides
    profile                   from counts to observations
    candidates, search_space  which configurations are possible; which of them a decision looks at
    acquisition, trials       what trying another configuration is worth; which one is tried next
    floor, drift              which trials are left at once; whether the speed has changed
    frontier, job_frontier    speed against cost, with NSGA-II; what a job tells the host of it
    reasons                   decisions in words
"""
