"""The supervisor: starts the processes of a job, shares out its samples, repairs what breaks, ends it cleanly.

    lifecycle, ledger, reconcile, evaluation, early_stop, cut, agenda, pinning    pure: decide
    observed                    facts about processes, folded from their messages
    run                         what all parts share: sockets, launcher, journal, fleet
    preflight, assembly         what is checked before a start, and what is made then
    rescue, ledger_applied      going on from the arena of a supervisor that died
    hanging, watching           when silence is a hang, and what /proc says of a silent process
    roster, training, judging, checkpointing    one concern each: owners and members, leases, evaluations, saving
    handover, migration, mover  who owns what from one shard map to the next; rows on their way to another host's arena
    control, recovery, shutdown what happens on a message, an exit or a hang, the end
    loop                        waits for the next of these and calls them
    job                         opens everything a run needs, and closes it however the run ends
    launch/                     the fork server and its client
    rundir, meter, status, host, reckoning    files and measurements; the journal and the result are in `elastichost.runs`

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
