"""Many jobs on one host: a queue, a policy that says who runs together, and each job's own supervisor for the rest.

    core/                  pure: jobs, their states, what they demand, which of them start
    isolation/             what keeps jobs apart on this host, and measures them
    loop, host             waits for what comes next, and calls the core; opens and closes a host
    performer              does what the core wants done
    admission_probe        looks at a job before it may start, in a process of its own
    job_process, child     a job's supervisor, and what it begins and ends with
    processes              the processes of all jobs
    resource_leases        tells runs what is their part of the host from now on
    job_observer           what jobs do and use
    facts, options, directory, timeline    values, and files

What runs beside what, and who gets how many cores, is decided by `tuner.colocation`.
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
