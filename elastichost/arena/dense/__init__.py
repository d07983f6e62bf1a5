"""The dense vector in the arena.

Modules:
    store     crash-safe by two halves: a commit writes the idle half, then publishes it with one store
    kernels   optimizers and readers over the flat vector
    mailbox   where a worker with direct access leaves a push
"""
