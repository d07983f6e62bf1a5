"""Measures the rows of a table in shared memory.

benchmark      the command: index, growth, memory, snapshot
index_systems  the index and the systems it is compared with
"""
