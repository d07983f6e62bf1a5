"""The input of a worker: what it reads ahead, over how many connections, within which memory, and how it is measured.

Modules:
    control      the knobs of one worker's input, its memory and its meters; shared by reader and pipeline
    settings     the knobs to begin with, those that the job file fixes, and the places of caches
    budget       the bytes that the input may hold ahead
    meter        CPU and waiting of one stage, strictly apart
    byte_ranges  cuts what a unit needs into requests; pure
    patience     how long a source with a trouble is waited for, and what is told; pure
    single_requests    requests that one thread makes and waits for
    transports/  how bytes come here: web servers, object stores
    connections  requests ranges over several connections at the same time
    remote_file  a file at a URL as pyarrow reads files
    read_ahead   decodes the next units in threads
    unit_cache   decoded units in memory that the workers of a run share
    range_cache  ranges of remote files on the disk, for all jobs of this user
    bounded_directory  files that are made once and read by many processes, within a bound of bytes
"""
