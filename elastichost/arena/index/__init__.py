"""The index of dynamic tables: from keys to rows.

Modules:
    table         one open-addressing index for each bucket: layout, memory order and crash rule; lookup and insertion
    upkeep        growth, rebuilding, repair and eviction by the writer
    hashing       the hashes that choose the bucket and the slot of a key
    key_kernels   kernels over the keys of a whole batch
"""
