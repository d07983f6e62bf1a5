"""The arena: a job's rows, their optimizer state and the dense vector in shared memory, as sparse mapped files.

Reading order: `layout` (what lies where), `host` (directories and their owners), `files` (mapping, allocating),
`arena` (the mapped whole), `index/` (keys to rows), `rows/` (kernels), `tables/` (what a table's owner does),
`dense/` (the dense vector), `recovery/` (what a kill must not tear).
Importing this package imports nothing heavy; `kernels` loads numba.
"""
