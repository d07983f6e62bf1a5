"""Kernels over columns.

Modules:
    hashing    XXH64 of strings
    ragged     ragged id columns
"""
