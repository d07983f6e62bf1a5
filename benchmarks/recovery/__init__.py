"""What the death of a process costs, and how soon another one trains.

benchmark    kills, hangs, checkpoints, scale-out, the peer; the command
watched_run  a run that is hurt on purpose
course       samples over time, and what a fault costs by them
torchrun     the peer
scale_out    from the request of a worker to its first batch; buckets that change hands; a command
scaled_run   the run of that
"""
