"""A worker with a GPU: the GPU reads and updates the model in the arena, or in its own memory, in steps captured as
graphs.

Modules:
    arena_memory    makes the arena's rows and mailboxes usable for the GPU
    resident_model  the model in memory of the GPU while the worker trains, and back
    device_dense    the dense part there: its optimizer is part of the step
    staging         copies batches to the GPU ahead of training
    trainer         the step of a worker with a GPU
"""
