"""Before a run trains: everything that can be known to be wrong, and the first plan.

Modules:
    preflight         checks of the job, its data, its model and this host
    model_probe       describes the model in a process of its own
    data_sample       what the beginning of the data tells
    memory_estimate   the peak memory of the job
    initial_plan      the first plan: from the job file, the history, or the default
    tuner_settings    what the tuner may choose from
    arena_takeover    goes on in the arena of a supervisor that died
    resume_source     what a run goes on from: an arena, its checkpoint, another run's
    applied_restart   applied.bin of a run that goes on from a checkpoint
    emulation         what is different where computing is emulated
"""
