"""The supervisor: starts the processes of a job, leases samples to workers, replaces lost processes, ends the run.

    core/            pure functions and state machines that decide
    ledger/          which samples are trained, and by which worker
    launch/          the fork server and its client
    remote/          other machines: agents, connections to them, Ray
    startup/         what is checked and chosen before a run trains
    controllers/     each one carries out the decisions of one core
    memory/          the memory budget: measured use, grants to parameter servers, forecast
    elastic_hosts/   machines that join a run, and machines that are lost
    autoscale/       the tuner in a live run
    phases/          the two phases of a run: the model is described, then the job trains
    job              opens everything a run needs, and closes it however the run ends
    supervisor       one run from its first process to its last: the phases, and the result
    event_loop       one turn: waits for a message, an exit, a signal or a timer, and calls its handler
    message_router   passes each message of a process to the controller that handles it
    command_handler  commands from outside (`scale`, a machine joins, the dispatcher lends cores)
    run_start        the arena, the dense part and the ledger that a run begins with
    assembly         makes the components of a run and connects them
    components       the components of a run
    context          the state that all parts share: sockets, launcher, journal, fleet
    rebalancer       moves buckets away from busy parameter servers
    rollback         takes the run back to its newest checkpoint
    status           what a run reports once a second
    run_result       the result of a run that has ended

This package never imports `ps` or `worker`: they run in other processes and are named by strings.
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
