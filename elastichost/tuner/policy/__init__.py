"""The tuner of one job: measures configurations, and decides which one runs.

Modules:
    policy                    the tuner: folds samples, fits the model, decides
    decision                  its settings, its state and its decisions
    evidence                  the fitted model and the candidates that a decision compares
    profile                   turns counters into observations
    candidates, search_space  the possible configurations; the part of them that a decision evaluates
    acquisition, trials       the value of trying a configuration; the choice of the next trial
    floor, drift              which trials end early; whether the speed has changed
    frontier, job_frontier    speed against cost, with NSGA-II; the frontier that a job reports to the dispatcher
    reasons                   the sentences of decisions

Theory of operation. The caller calls `advance` with every sample of the counters, the number of samples that are left
to train, and the settings. `absorb` folds the sample into the block that is being measured (`profile.fold`). A complete
block becomes an observation; the drift detector (`drift.observe`) compares it with earlier observations of the same
configuration. `evidence_of` fits the model to all observations, corrects its predictions by the measured residuals
(`residual_gp.surface`), and selects the configurations to evaluate (`search_space`). `trials.choose` selects a trial or
a move among them. If there is none, and the running configuration is slower than the best known one, the tuner returns
to that one; otherwise it settles.

The caller applies a decision by changing the plan; the next sample with the new configuration starts a new block. If a
change is not made, its configuration is decided for at most ATTEMPTS times, and only within the bounds.
"""
