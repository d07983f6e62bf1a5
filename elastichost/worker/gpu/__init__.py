"""A worker with a GPU: rows are read and updated by the GPU where they lie in the arena, in steps captured as graphs.

Modules:
    arena_memory  makes the arena's rows and mailboxes usable for the GPU
    staging       copies batches to the GPU ahead of training
    trainer       the step of a worker with a GPU
"""
