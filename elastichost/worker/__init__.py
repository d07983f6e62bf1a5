"""A worker process: reads samples, trains the user's model and scores test data with it.

Modules:
    main           entry of the process
    lifecycle      from Hello to Stop: control messages, pauses, heartbeats
    lease_worker   a lifecycle with leases: requests ranges of positions, reports how far they are trained
    loop           trains the user's model on leases
    sync/          the loop of sync mode
    setup          builds what a worker trains with; the only module that looks at the access mode
    step           the forward pass and the loss of one training step
    pipeline       the thread that reads ahead
    evaluation     scores a range of the test set
    model/         the user's model on the arena: lookups, interactions, the dense vector
    access/        the rows of a batch: used in place, or pulled from their owners
    commit/        how the result of a batch becomes part of the job's model
    channels/      connections to the parameter servers
    meter          the times and counts that a worker sends with each heartbeat
    probe          a separate process that builds the user's model once and describes it
    trial_step     training steps before the job runs, with constant rows
    step_times     times of such steps, by precision and batch size
    footprint      sizes of the tensors of one training step, from which the memory of a worker is estimated
"""
