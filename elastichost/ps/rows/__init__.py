"""Rows of the buckets a parameter server owns.

Modules:
    store       created, read, updated, evicted, copied out
    row_lines   weights that leave, gradients that come in
    eviction    when rows are evicted; pure
    evictor     evicts them
    restorer    fills buckets from a checkpoint, or with initial rows
"""
