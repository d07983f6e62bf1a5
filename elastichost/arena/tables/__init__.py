"""What the owner of a table's buckets does.

Modules:
    bucket_space    memory of a bucket, taken and given back
    dynamic_table   the writer of one dynamic table: rows for new ids, eviction, repair
    growth          an index grows a little with every call
"""
