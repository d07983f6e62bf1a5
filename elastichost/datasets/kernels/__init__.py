"""Kernels over columns.

Modules:
    compiled   how they are compiled
    hashing    XXH64 of strings
    ragged     ragged id columns
"""
