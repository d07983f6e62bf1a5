"""Which samples are trained, and by which worker. All modules but `checkpoint_record` are pure.

Modules:
    ledger              leases of samples to workers, and the count of every sample
    held_leases         the leases that workers hold, by worker
    state               settings and values of the ledger, and its form in a checkpoint
    replay              rebuilds the ledger of a supervisor that died from the record of committed batches
    checkpoint_record   the supervisor's part of a checkpoint: ledger, dense vector, evaluations
    evaluation          one pass over the test set
    early_stopping      ends training when the test metric does not improve any more
"""
