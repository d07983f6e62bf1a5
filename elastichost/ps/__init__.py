"""A parameter server (PS): owns buckets of rows, and one PS also the dense vector; answers requests of workers.

Modules:
    main              entry of the process
    loop              the event loop: two sockets, one store; control messages and shard maps
    service           answers data messages: pulls, pushes, the dense vector
    session           the state of the peers of a PS: members, fences, clocks; pure
    rules             which messages a worker of this job may send; pure
    applier           stages pushed rows when they come, applies them once when their batch is committed
    dense_optimizer   the optimizer of the dense vector
    applied_log       the log of every committed batch
    snapshot          the part of a checkpoint that a PS writes
    rows/             the rows of its buckets
    sync/             sync mode, at the owner of the dense vector
    transfer/         buckets that move to another host
    frames            checked access to the arrays of messages
    meter             counts of requests and bytes for a heartbeat
    audit             hashes of buckets that change owners, for tests and `chaos`
"""
