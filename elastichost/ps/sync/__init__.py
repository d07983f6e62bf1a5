"""Sync mode at the dense owner.

Modules:
    step_board     collects the micro-batches of the open step; sans-IO
    step_service   commits a step when it has all its micro-batches
"""
