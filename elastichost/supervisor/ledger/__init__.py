"""Which samples are trained, and by which worker. All but `checkpoint_record` is pure.

Modules:
    ledger              leases of samples, and what became of every sample
    state               values of the ledger, and its form in a checkpoint
    replay              the ledger of a supervisor that died, from the record of committed batches
    checkpoint_record   what a checkpoint says of a run beside its rows
    evaluation          one pass over the test set
    early_stopping      when the test set gains nothing any more
"""
