"""The rows of the buckets that a parameter server owns.

Modules:
    store       creates, finds, evicts and copies rows; owns their index
    row_lines   reads weights for pulls, applies gradients of pushes
    eviction    decides when rows are evicted and their places reused; pure
    evictor     performs what `eviction` decides
    restorer    fills buckets from a checkpoint, or with initial rows
"""
