"""How bytes of a file at an address come here. All else (ranges, retries, caches, events) is the same for each.

Modules:
    addressed_file the identity of a file, and the errors of a request
    addresses      the parts of an address of a store; pure
    connection     one connection, by whichever transport the address names
    http_range     a web server or object store that answers range requests
    open_stores    the stores that the threads of a process have opened
    store_files    a file of a store as a transport
    store_errors   which errors of stores may pass, and what to do about the others; pure
    arrow_store    stores that pyarrow reads: S3, Google Cloud Storage, Azure, HDFS
    s3_options     what an S3 client is made with: endpoint, region, limits of time
    fsspec_store   stores that fsspec reads, where the package of the scheme is installed
    patient_calls  calls of libraries that may block for longer than they are waited for
    glob_matches   the files that match a glob
"""
