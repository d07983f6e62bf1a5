"""Sync mode in a worker.

Modules:
    sync_loop      the loop of such a worker
    sync_worker    computes micro-batches, waits for the end of the step
    step_queue     which micro-batch comes next; sans-IO
"""
