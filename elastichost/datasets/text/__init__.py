"""Readers of text files.

Modules:
    reader                  text files of any line format; a unit is a range of lines
    plain_copy              plain text of compressed files at addresses
    first_lines             sizes and first lines of files at addresses
    line_index              the byte offsets at which units begin
    csv, csv_block          CSV with a header line
    criteo, criteo_kernel   Criteo's format
    convert                 conversion of text to Parquet
"""
