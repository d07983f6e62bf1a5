"""Sync mode in a worker.

Modules:
    sync_worker    computes micro-batches, waits for the end of the step
    step_channel   what it tells parameter servers of its micro-batches
    step_queue     which micro-batch comes next; sans-IO
"""
