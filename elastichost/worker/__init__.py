"""A worker process: reads samples, trains the user's model and scores test data with it.

Modules:
    main           entry of the process
    lifecycle      from Hello to Stop: control messages, pauses, heartbeats
    lease_worker   a lifecycle with leases: requests ranges of positions, reports how far they are trained
    loop           trains the user's model on leases
    sync/          the loop of sync mode
    setup          builds what a worker trains with; the only module that looks at the access mode
    readers/       processes that read for a worker
    steps/         one step of the user's model, and trials of it before a run
    pipeline       the thread that reads ahead
    evaluation     scores a range of the test set
    evaluation_groups    the groups of its samples, for metrics such as "gauc(user)"
    source_requests    how a worker waits for its source as it starts, and for test data
    heap           returns free memory of the heap to the system
    model/         the user's model on the arena: lookups, interactions, the dense vector
    gpu/           the step of a worker with a GPU, which uses rows in place
    access/        the rows of a batch: used in place, or pulled from their owners
    commit/        how the result of a batch becomes part of the job's model
    channels/      connections to the parameter servers
    meter          the times and counts that a worker sends with each heartbeat
    probe          a separate process that builds the user's model once and describes it
    footprint      sizes of the tensors of one training step, from which the memory of a worker is estimated
"""
