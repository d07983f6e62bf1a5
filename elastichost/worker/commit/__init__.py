"""The commit strategies: how the gradients of a batch become part of the job's model.

Modules:
    strategy          the interface of every commit strategy
    lease_commit      the base of the strategies for leased batches: outstanding pushes, lease progress, the clock
    direct_commit     rows are updated in place, dense gradients lie in the mailbox of the arena
    served_commit     rows are staged with their owners, then committed
    device_commit     direct access with the model in memory of the GPU
    mixed_commit      rows are updated in place or staged, by the host of their bucket
    sync_commit       the micro-batches of a step
    dense_transport   how parameters and dense gradients travel
    peer_clock        how far ahead of its peers a worker may train
    step_channel      sync mode: the requests of a worker to the parameter servers
"""
