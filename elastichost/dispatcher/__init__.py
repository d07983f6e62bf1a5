"""The dispatcher: trains many jobs on one host. It has a queue, and a policy that decides which jobs run together. Each
job has its own supervisor, to which the dispatcher lends a part of the host.

    core/              the dispatcher's decisions, without I/O: states and demands of jobs, and which jobs start
    isolation/         isolates jobs from each other, and measures the resources that they use
    host               opens the dispatcher, runs it, and closes it
    loop               waits for events, and passes them to the core
    performer          performs the effects that the core returns
    admission_probe    examines a job before its start, in a process of its own
    job_process        the process of a job's supervisor
    child              the working directory and the failure file of both kinds of processes
    processes          starts, signals and reaps the processes of all jobs
    resource_leases    tells runs their part of the host, and receives their answers
    job_observer       observes the status, CPU time and memory of each job
    facts              values that are written to files and shown
    options            the options of a dispatcher, and the jobs that it is given
    directory          the directory of a dispatcher: status, queue, folders of jobs
    timeline           what every job used, by second

The policies and the division of cores are in `tuner.colocation` and `tuner.placement`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastichost.dispatcher.host import Submission, run_host

__all__ = ["Submission", "run_host"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from elastichost.dispatcher import host

        return getattr(host, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
