"""Parquet.

Modules:
    reader   a row group is a unit
    schema   what the footers say
    values   bad values, found through statistics
"""
