"""Rows from Python: written once as Parquet, so that training reads them as any other file.

Modules:
    column_fit    whether later values fit the type that the first rows gave a column
    row_tables    rows, frames and Arrow tables -> Arrow tables with one schema
    spool_file    the Parquet file: complete or absent, and which rows it holds
"""
