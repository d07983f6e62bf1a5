"""The tuner of one job: measures configurations, and decides which one runs.

Modules:
    policy                    the tuner: folds samples, fits the model, decides
    decision                  its settings, its state and its decisions
    profile                   turns counters into observations
    candidates, search_space  the possible configurations; the part of them that a decision evaluates
    acquisition, trials       the value of trying a configuration; the choice of the next trial
    floor, drift              which trials end early; whether the speed has changed
    frontier, job_frontier    speed against cost, with NSGA-II; the frontier that a job reports to the dispatcher
    reasons                   the sentences of decisions
"""
