"""Sync mode in a worker.

Modules:
    sync_loop      the loop of a worker in sync mode
    sync_worker    computes micro-batches and waits for the end of the step
    step_queue     decides which micro-batch comes next; sans-IO
"""
