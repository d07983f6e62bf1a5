"""A parameter server (PS): owns buckets of rows, and one PS also the dense vector; answers requests of workers.

Modules:
    main              entry of the process
    loop              the event loop: two sockets, one store; control messages and shard maps
    service           answers data messages: pulls, pushes, the dense vector
    session           the state of the peers of a PS: members, fences, clocks; pure
    rules             which messages a worker of this job may send; pure
    applier           stages pushed rows when they come, applies them once when their batch is committed
    applied_log       the log of every committed batch
    snapshot          the part of a checkpoint that a PS writes
    rows/             the rows of its buckets
    sync/             sync mode, at the owner of the dense vector
    transfer/         buckets that move to another host
    frames            checked access to the arrays of messages
    meter             counts of requests and bytes for a heartbeat
    audit             hashes of buckets that change owners, for tests and `chaos`

Rules
1. Control messages are handled before data messages in every turn; at most MESSAGES_PER_TURN data messages a turn.
2. Shard maps are adopted in the order of their epochs; an epoch that is not greater is ignored.
3. A PS releases a bucket only when no staged push waits that could contain its rows: its next owner has no access to
   what this PS staged. Each waiting push is applied or dropped by what the supervisor and the dense owner report.
4. Ready(epoch) is sent when every bucket of that map is owned and filled here. Until then the PS keeps the old epoch,
   so it refuses requests by the new one.
5. The dense owner answers a fence with the applied record only when all that the incarnation had released is committed.

Theory of operation. Adopting a shard map (`loop`, `_adopt`), in this order:

    settle staged pushes -> release lost buckets -> take over buckets that moved here from another host -> fill gained
    buckets (from the arena, a checkpoint, or with initial rows) -> as new dense owner: cut applied.bin, apply staged
    rows of committed batches -> new epoch valid -> Ready

The map is kept in `_update` and adopted again when a step must wait: for the end of an incarnation (UnsettledMsg ->
SettleMsg), or for rows from another host. A kill at any point leaves rows, index and staged pushes in the arena. The
successor owns nothing at first; the supervisor sends it the newest map and the list of committed batches, and opening
the applier and the buckets repairs what was half done.

A snapshot: settle committed steps -> copy all owned buckets and, as dense owner, the dense state -> SnapshotCutMsg
(training goes on) -> a thread writes the copy -> SnapshotWrittenMsg. A full disk holds commits back: the request gets
no answer, its sender repeats it, and `_try_again` finishes open fences and the held step when there is space.
"""
