"""The tuner and the replacement of slow workers in a live run.

Modules:
    tuner_loop       samples the run twice a second, lets `tuner.policy` decide, and applies its plans
    input_tuner      the same for the input: lets `tuner.input` decide, and sends the knobs to the workers
    input_counter    sums of what the input of all workers did
    plan_trial       a change by the tuner, until it is done or taken back
    counters         sums of what the processes have done and used
    stragglers       replaces workers that are far slower than the other workers
    history_writer   writes what a run has measured to the history, for similar jobs
"""
