"""The arena: a job's rows, their optimizer state and the dense vector in shared memory, as sparse mapped files.

Modules, in the order to read them:
    layout           what lies where; pure
    least_room       how many bytes it takes at the least; pure
    host             the directories of a run outside its run directory
    owner            the process that such a directory belongs to
    directory_lock   whether that process lives
    files            one mapped file: pages are allocated before anybody touches them
    arena            the mapped whole
    words            aligned words by which one process tells another that something is there
    compiled         how kernels are compiled; atomic loads and stores
    kernels          all kernels that other packages use
    index/           keys to rows
    rows/            lookups and updates
    tables/          what a table's owner does
    dense/           the dense vector
    recovery/        what a kill must not tear
    watermarks       what must outlive a worker
    memory_board     memory that the supervisor allows, and what parameter servers have taken
    double           the copy of an arena on another machine

Importing this package imports nothing heavy; `kernels` loads numba.
"""
