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
    phases/          what a run does in its turns: describe the model, train, end
    job              opens everything a run needs, and closes it however the run ends
    supervisor       a run from its first process to its last: the phases, and the result
    event_loop       one turn: waits for a message, an exit, a signal or a timer, and calls what handles it
    message_router   messages of processes, each to the controller it concerns
    command_handler  commands from outside
    run_start        the arena, the dense part and the ledger that a run begins with
    assembly         makes the components of a run and connects them
    components       what these are
    context          what all parts share: sockets, launcher, journal, fleet
    rebalancer       moves buckets of busy parameter servers
    rollback         back to a checkpoint; status: what is reported; run_result: how it ended

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
