"""Each controller drives one pure core: it performs the core's effects, and tells it what happened.

Modules:
    processes            starts, stops and replaces processes (core.reconciler)
    liveness             looks at silent processes (core.liveness)
    leases               leases out, progress in (ledger)
    sync_crew            micro-batches of sync mode (ledger)
    evaluations          test ranges out, scores in (ledger.evaluation)
    checkpoints          cuts and manifests (core.checkpoint_cut)
    replication          checkpoints on a second machine
    shard_map            owners of buckets, members of the run (core.handover)
    shard_map_delivery   who is told the shard map, in which messages, and when
    migration            buckets on their way to another host (core.migration)
    plan                 the only writer of the plan
    plan_change          a change of the plan while the run trains (core.plan_change)
    work_gate            whether workers may be given work now
"""
