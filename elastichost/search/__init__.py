"""Searches for the best values of settings: Optuna suggests them, and the dispatcher trains the trials.

Modules:
    space       the parameters of a search: which settings, and which values
    objective   the metric that a search improves, and its value in the result of a run
    trials      the states of the trials, and what to do next
    study       the study of Optuna, in a file of the search directory
    settings    the directory and the settings of a search, which its resume reads again
    trial_feed  gives the trials to the dispatcher, and their metrics to Optuna
    outcome     the trials and the best job of a search, as files
    run_search  begins a search or continues one

A trial is one job on the dispatcher. Two files know a trial: the study (its values, and whether Optuna was told) and
the queue of the dispatcher (its job). The name of a job follows from the number of its trial, so after a kill each
trial continues where it was: none is lost, and none is trained twice.
"""
