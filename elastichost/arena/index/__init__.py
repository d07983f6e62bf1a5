"""Keys to rows of dynamic tables.

Modules:
    table         one open-addressing index for each bucket; the rules
    upkeep        growth, rebuilding and repair by the one writer
    hashing       the hashes that place a key
    key_kernels   keys of a whole batch
"""
