"""Buckets that move to another host. The source is the PS that has a bucket, the target is the PS that copies it.

Modules:
    both_ends       the part of a PS in moves, as source and as target; the supervisor's orders
    mover           the target: fetches buckets
    bucket_source   the source: answers with rows
    bucket_copy     the state machine of one bucket that is copied
    bucket_rows     reads and writes the rows of a bucket in parts, with checksums
    changed_rows    flags rows that changed since they were copied
"""
