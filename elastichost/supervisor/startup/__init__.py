"""What happens before a run trains: checks, the starting point, the first plan; and the request of each process.

Modules:
    preflight         checks the job, its data, the source of its model, and this host
    model_probe       starts one process that builds the model and describes it
    data_sample       reads the first samples, for the estimate of the memory
    memory_estimate   collects the facts from which the peak memory of a job is estimated
    room              checks that the rows fit into the memory of the hosts of the first plan
    initial_plan      the first plan: from the job file, the history, or the cold start
    worker_kinds      whether CPU workers may train beside workers with a GPU
    tuner_settings    the bounds of the tuner, and the properties of the job that it needs
    opened_run        opens a run, new or to be resumed: checks it, and locks its directory
    arena_takeover    takes over the arena of a supervisor that died
    resume_source     where a run starts from: an arena, its checkpoint, or the checkpoint of another run
    applied_restart   applied.bin of a run that starts from a checkpoint
    process_start     requests one process, with its arguments and its log
"""
