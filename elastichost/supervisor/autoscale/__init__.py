"""The tuner and the replacement of slow workers in a live run.

Modules:
    tuner_loop       samples the run twice a second, lets `tuner.policy` decide, and applies its plans
    plan_trial       a change by the tuner, until it is done or taken back
    counters         sums of what the processes have done and used
    stragglers       replaces workers that are far slower than the other workers
    history_writer   writes what a run has measured to the history, for similar jobs
"""
