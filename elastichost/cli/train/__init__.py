"""Verbs that train, and verbs before that.

Modules:
    run, dry_run      run, resume; run --dry-run
    plan              what a run would start with
    scale             another size for a run that is going on
    config, convert   the job file; text to Parquet
    hosts_option      options that name other machines
    summary           the last screen of a run
"""
