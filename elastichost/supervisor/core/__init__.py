"""Pure cores of the supervisor. They do no I/O and read no clock: facts and the present time are arguments, and the
effects to perform are return values. A controller (`supervisor.controllers`) or a phase performs these effects.

Modules:
    lifecycle         states of one process, and the transitions between them
    fleet             the newest incarnation of each process, folded from events and messages
    reconciler        compares the fleet with the plan; returns which processes to start, stop, drain or kill
    liveness          when a silent process counts as hung
    core_assignment   which cores each process is pinned to, and its GPU environment
    agenda            what the run does next: epoch, evaluation, checkpoint, end
    backoff           when something that failed is tried again
    checkpoint_cut    states of one checkpoint
    handover          which parameter server owns which buckets, from one shard map to the next
    migration         states of a round of buckets that are copied to another host
    plan_change       checks a `scale` command, and measures what a plan change costs
    disk_space        which files cannot be written because a disk is full
    work_budget       limits the share of a core that the supervisor uses
"""
