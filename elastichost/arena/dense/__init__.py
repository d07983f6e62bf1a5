"""The dense vector in the arena.

Modules:
    store     two copies ("halves"): a commit writes the idle half, then publishes it with one store
    kernels   optimizer steps and consistent reads of the flat vector
    optimizer its settings, from the job file
    mailbox   place where a worker with direct access leaves a push for the dense owner
"""
