"""How many processes of each kind a job should have, with which cores. Pure.

Modules:
    facts           configurations, workloads, observations, predictions
    policy/         which configuration is tried, kept or left, from what was measured
    models/         samples a second of a configuration, with equations and their sources
    placement/      which process, bucket and core goes where
    memory/         what a job will take of memory, and what is done before it is too much
    colocation/     many jobs on one host
    first_plan      the first plan of a run: from the job file, the history or the cold start
    cold_start      that of a job that nothing is known about
    warm_start      that of a job like others that are over
    plan_preview    `elastichost plan`: what would be chosen, and how sure that is
    health          workers that are far slower than the others
    health_record   which looks at them are recorded
    records         the lines of decisions.jsonl
    replay          makes recorded decisions again
"""
