"""Buckets on their way to another host.

Modules:
    both_ends       a parameter server as the one that has a bucket, and as the one that gets it
    mover           fetches buckets
    bucket_source   answers with rows
    bucket_copy     the course of one bucket
    bucket_rows     rows of a bucket in parts, with a checksum
    changed_rows    which rows changed since they were copied
"""
