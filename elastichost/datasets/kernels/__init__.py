"""Compiled kernels over columns.

Modules:
    hashing    XXH64 of strings
    ragged     operations on ragged id columns
"""
