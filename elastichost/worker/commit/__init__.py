"""The commit of a batch: how what a worker computed becomes part of the job's model.

Modules:
    strategy          what every way to commit has in common
    lease_commit      what those of leased batches share: pushes on their way, lease progress, the clock
    direct_commit     rows in place, gradients in the mailbox of the arena
    served_commit     rows staged with their owners, then committed
    mixed_commit      rows in place or staged, by place
    sync_commit       micro-batches of a step
    dense_transport   how parameters and dense gradients travel
    peer_clock        how far ahead of its peers a worker may train
    step_channel      what a worker tells parameter servers of its micro-batches
"""
