"""The tuner in a live run, and what it looks at.

Modules:
    tuner_loop       looks twice a second, lets `tuner.policy` decide, has its plans followed
    plan_trial       a change that the tuner made, until it is done or taken back
    counters         what processes have done and used
    stragglers       replaces workers that are far slower than their peers
    history_writer   what a run taught, for jobs like it
"""
