"""The arena: a job's rows, their optimizer state and the dense vector in shared memory, as sparse mapped files.

Modules, in the order to read them:
    layout           the offset of every array in the files; pure
    least_room       the minimum number of bytes that an arena takes; pure
    host             the directories of a run outside its run directory
    owner            the process that owns such a directory
    directory_lock   whether that process is alive
    files            one mapped file, whose pages are allocated before a process touches them
    arena            all files of an arena, mapped
    words            aligned words with which one process publishes data to others
    compiled         how kernels are compiled; atomic loads and stores
    kernels          all kernels that other packages use
    index/           from the keys of dynamic tables to rows
    rows/            kernels that look rows up and update them
    tables/          what the owner of a table's buckets does
    dense/           the dense vector
    recovery/        staged pushes and undo records, which survive a kill of a parameter server
    watermarks       facts about workers that outlive them
    memory_board     memory that the supervisor grants, and memory that parameter servers have taken
    replica          how the replica of another machine's arena is kept equal to it

Importing this package loads no heavy library; `kernels` loads numba.
"""
