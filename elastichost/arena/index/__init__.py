"""Keys to rows of dynamic tables.

Modules:
    table           one open-addressing index for each bucket; the rules
    dynamic_table   the writer of one dynamic table: rows for new ids, eviction, repair
    growth          an index grows a little with every call
    upkeep          growth, rebuilding and repair by the one writer
    hashing         the hashes that place a key
    key_kernels     keys of a whole batch
"""
