"""Decides how many workers and parameter servers (PS) a job has, and with how many cores. Pure.

Modules:
    facts           configurations, workloads, observations, predictions
    policy/         decides from measurements which configuration to try, keep or leave
    models/         predict the samples/s of a configuration, with equations and their sources
    placement/      assigns processes, buckets and cores to hosts, PS and jobs
    cluster/        divides the cores of a host or a cluster among jobs
    memory/         forecasts the memory of a job, and decides what to do before it exceeds the budget
    input/          tunes how workers read: connections, bytes ahead
    colocation/     decides which jobs run together on one host
    first_plan      the first plan of a run: from the job file, the history or the cold start
    cold_start      the first plan of a job without any history
    warm_start      the first plan of a job that resembles finished jobs
    plan_preview    `elastichost plan`: the plan that would be chosen, and how reliable its forecast is
    health          finds workers that are far slower than the other workers
    health_record   decides which samples of worker speeds are recorded
    records         the lines of decisions.jsonl
    replay          computes recorded decisions again
"""
