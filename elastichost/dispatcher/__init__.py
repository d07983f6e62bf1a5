"""Many jobs on one host: a queue, a policy that says who runs together, and each job's own supervisor for the rest.

    core, entries, life, demands, containing    pure: jobs, their states, what they demand, who starts
    endings, stopping, holding, refusals        pure: ends, requests to end, what a run has if not what it was told
    facts, effects, options      what is told, what is to be done, how it is to be done
    examining                    looks at a job before it may start, in a process of its own
    job_process                  a job's supervisor: forked, lent a part of the host
    child                        what both of these begin and end with
    crew, lending                the processes of all jobs; telling a run what is its part from now on
    watching, meter, power       what jobs do and use; what the host can
    isolation, limits, delegation, cgroups, resctrl, control_files, mps    what keeps jobs apart, where it is lent
    performing                   does what the core wants done
    directory, timeline          files
    loop                         waits for the next of these and calls the core

What runs beside what, and who gets how many cores, is decided by `tuner.colocation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastichost.dispatcher.hosting import Submission, run_host

__all__ = ["Submission", "run_host"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from elastichost.dispatcher import hosting

        return getattr(hosting, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
