"""Each controller drives one pure core: it performs the core's effects, and passes events on to it.

Modules:
    processes            starts, stops and replaces processes (core.reconciler)
    liveness             reads the kernel state of silent processes (core.liveness)
    leases               grants leases, takes progress, settles lost workers (ledger)
    sync_crew            the same for sync mode: ranges of steps, micro-batches (ledger)
    evaluations          grants test ranges, takes scores (ledger.evaluation)
    checkpoints          takes checkpoints and commits manifests (core.checkpoint_cut)
    replication          copies checkpoints to a second machine
    shard_map            changes the owners of buckets, publishes shard maps and memberships (core.handover)
    shard_map_delivery   sends the shard map to PS and workers, when they may have it
    migration            copies buckets to another host (core.migration)
    plan                 the only writer of the plan
    plan_change          applies a plan change while the run trains, and measures it (core.plan_change)
    work_gate            whether workers may be given work now
"""
