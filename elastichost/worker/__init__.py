"""A worker: reads, trains and scores with the user's model.

Modules:
    main           entry of the process
    lifecycle      from Hello to Stop: control messages, pauses, heartbeats
    lease_worker   the same with leases: asks for ranges of positions, reports how far they are trained
    loop           trains the user's model on leases
    sync/          the loop of sync mode
    setup          what a worker trains with; here the access mode is looked at
    step           one training step of the user's model
    pipeline       the thread that reads ahead
    evaluation     scores a range of the test set
    model/         the user's model on the arena: lookups, interactions, the dense vector
    access/        rows of a batch: in place, or asked of their owners
    commit/        how what a batch computed becomes part of the job's model
    channels/      connections to the parameter servers
    meter          what a worker measures of itself
    probe          describes the user's model, in a process of its own
    footprint      the tensors of one step, and what the model needs of memory by them
"""
