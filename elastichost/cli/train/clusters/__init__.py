"""`plan JOB --for CLUSTER`: writes what starts a job on a cluster, sized by the plan and by the estimate of memory.

Modules:
    request      what the job asks of each node: cores, memory, GPUs, time
    destination  where the job runs there: image, directories, partition, volumes
    manifest     renders the templates of templates/
    source_text  source files as text in UTF-8
    options      options of the verb

Every text calls `elastichost run JOB --run-dir DIR --continue`, and starts the job again when it ends with exit code
75: it was told to stop (SIGTERM), and has saved a checkpoint.
"""
