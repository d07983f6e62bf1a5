"""Reader processes: each belongs to one worker, reads samples for it and writes them into memory that both map.

The worker keeps its leases and commits. A reader has no lease, no CUDA context and no connection to parameter servers.
`docs/adr/0036-reader-processes.md` has the argument for kills.

Modules:
    orders        which reader reads what, and what is ordered again after a kill; pure
    records       a batch as bytes
    ring_memory   memory in which a reader publishes records, and from which its worker takes them
    messages      what a worker and its reader send to each other
    link          the socket between a worker and its reader
    failures      the error of a reader, as its worker raises it
    connected     a reader as its worker sees it: its link and its rings
    pool          the worker's end: orders batches, and takes them in order
    service       the reader's end: reads what is ordered
    publisher     writes the batches of a reader into its rings
    main          entry of a reader process, and its conversation with the supervisor
"""
