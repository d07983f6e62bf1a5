"""A parameter server (PS): owns buckets of rows, and perhaps the dense vector; answers workers.

Modules:
    main              entry of the process
    loop              two sockets, one store; the only place of a PS that does I/O
    service           pulls, pushes, the dense vector: one request in, replies out
    session           what a PS remembers of its peers: members, fences, clocks; pure
    rules             what a worker may say to a PS of this job; pure
    applier           pushed rows: staged when they come, applied once when their batch is committed
    dense_optimizer   the optimizer of the dense vector
    applied_log       the record of every committed batch
    snapshot          a PS' part of a checkpoint
    rows/             rows of its buckets
    sync/             sync mode, at the owner of the dense vector
    transfer/         buckets on their way to another host
    frames            arrays of messages, checked
    meter             what it has done since its last heartbeat
    audit             hashes of buckets that change owners, for tests and `chaos`
"""
