"""Text files.

Modules:
    reader                  a unit is a run of lines
    line_index              where units begin
    csv, csv_block          CSV with a header line
    criteo, criteo_kernel   Criteo's format
    convert                 text to Parquet, once
"""
