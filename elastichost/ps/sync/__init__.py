"""Sync mode at the dense owner.

Modules:
    step_board     the micro-batches of a step; sans-IO
    step_service   commits a step when it has all of them
"""
