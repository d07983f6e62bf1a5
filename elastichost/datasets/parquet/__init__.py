"""The reader of Parquet files.

Modules:
    reader   the decoder; a row group is a unit
    schema   checks the footers
    footers  the footers of files at addresses
    values   finds bad values with the statistics of row groups
    group_writer   writes tables with row groups of one size
"""
