"""Measures the rows of a table in shared memory.

benchmark      the command: index, growth, memory, snapshot
row_bandwidth  the row kernels and the memory bandwidth
index_systems  the index and the systems it is compared with
"""
