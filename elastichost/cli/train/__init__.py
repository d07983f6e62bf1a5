"""Verbs that train a job, and verbs that prepare one.

Modules:
    run, dry_run      run, resume; run --dry-run
    continuation      run --continue: what a run directory has left to resume
    cluster_plan      plan --for: plans for a node of a cluster
    clusters/         plan --for: what starts a job on a cluster
    plan, forecast    predicts the plan, the speed and the memory of a run
    step_advice       what plan says of precision and batch size
    scale             changes the number of workers and PS of a run while it trains
    init              writes a job file for a file of samples
    config, convert   prints the job file and its schema; converts text data to Parquet
    hosts_option      options that name other machines
    summary           the last screen of a run
"""
