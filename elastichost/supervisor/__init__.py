"""The supervisor: starts the processes of a job, shares out its samples, repairs what breaks, ends it cleanly.

    core/            pure: decides
    ledger/          which samples are trained, and by which worker
    launch/          the fork server and its client
    remote/          other machines: agents, the way to them, Ray
    startup/         what is checked and chosen before a run trains
    controllers/     each performs what one core decides
    memory/          the budget of memory: measured, granted, foreseen
    elastic_hosts/   machines that join and are lost
    autoscale/       the tuner in a live run
    job              opens everything a run needs, and closes it however the run ends
    event_loop       waits for a message, an exit, a signal or a timer, and calls what handles it
    message_router   messages of processes; command_handler: commands from outside
    assembly         makes the components of a run
    context          what all parts share: sockets, launcher, journal, fleet
    rebalancer       moves buckets of busy parameter servers
    rollback, status, run_summary, disk_watch, signals    small parts of the loop

It never imports `ps` or `worker`: those run in other processes and are named by strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastichost.runs.result import RunResult
    from elastichost.supervisor.job import run_job

__all__ = ["RunResult", "run_job"]


def __getattr__(name: str) -> object:
    if name == "run_job":
        from elastichost.supervisor.job import run_job

        return run_job
    if name == "RunResult":
        from elastichost.runs.result import RunResult

        return RunResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
