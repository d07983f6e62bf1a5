"""Measures the cost of the death of a process, and the time until an added worker trains.

benchmark    the command `recovery`: kills, hangs, checkpoints, scale-out, the peer
watched_run  a run into which faults are injected
course       samples over time, and the cost of a fault computed from them
torchrun     the peer
scale_out    the command `scale-out`: from the request of a worker to its first batch; hand-overs of buckets
scaled_run   the run of `scale_out`
"""
