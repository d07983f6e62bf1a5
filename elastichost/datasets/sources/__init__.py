"""The input of a worker: what it reads ahead, over how many connections, within which memory, and how it is measured.

Modules:
    control      the knobs of one worker's input, its memory and its meters; shared by reader and pipeline
    settings     the knobs to begin with, and those that the job file fixes
    budget       the bytes that the input may hold ahead
    meter        CPU and waiting of one stage, strictly apart
    byte_ranges  cuts what a unit needs into requests; pure
    patience     how long a source with a trouble is waited for, and what is told; pure
    http_range   one connection to a web server or object store
    connections  requests ranges over several connections at the same time
    remote_file  a file at a URL as pyarrow reads files
    read_ahead   decodes the next units in threads
"""
