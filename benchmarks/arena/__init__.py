"""The rows of a table in shared memory.

benchmark      index, growth, memory, snapshot; the command
index_systems  what the index is compared with
"""
