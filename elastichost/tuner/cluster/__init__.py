"""Divides the cores of a host or a cluster among jobs. Pure: the dispatcher calls it, and the simulator of the
benchmarks.

Modules:
    decide          which configuration each job has, and with how many cores
    facts           the view of the jobs and their cores, and the grants
    proposals       what the tuner of one job would run next, until it is granted or stale
    first_options   the options of a job about whose speed nothing is known
    refusals        configurations that did not fit on the hosts, which are not granted again for a while

The policy of each single job is `tuner.policy`: it measures, fits the model, and reports its frontier
(`policy.job_frontier`) and what it would try next within its cores. An emulated run has the supervisor and the
dispatcher of every run, and therefore the same policy.
"""
