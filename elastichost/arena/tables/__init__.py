"""What the owner of a table's buckets does.

Modules:
    bucket_space    allocates and frees the memory of one bucket
    dynamic_table   the writer of one dynamic table: rows for new ids, eviction, repair
    growth          grows the index of a dynamic table in small steps
"""
