"""Pure: decides. Facts and the time come as arguments, effects go out as values.

Modules:
    lifecycle         states of a process
    fleet             what is known of all processes
    reconciler        from what is and what should be to what has to be done
    liveness          when a silent process counts as hung
    core_assignment   which cores and GPU shares each process gets
    agenda            what the run should do next: epoch, evaluation, checkpoint, end
    backoff           when something that failed for want of memory is tried again
    checkpoint_cut    states of a checkpoint
    handover          which parameter server owns which buckets, from one shard map to the next
    migration         states of buckets that go to another host
    plan_change       what a change of the plan costs
    disk_space        which files cannot be written
    work_budget       how much of a core the supervisor takes
"""
