"""Takes a run back to its newest good checkpoint.

There are three causes. With `train.non_finite = "roll_back"`, a batch has produced a value that is not finite; the run
continues without that batch. In sync mode, a host is lost; the run continues without it. The model was in memory of a
GPU, and the memory is gone.

All training since the checkpoint is lost, and the lost samples are counted exactly. All processes are ended, a new
arena is made, and the run begins from the checkpoint (or from the start of the data, when there is none) as a resumed
run does. The supervisor, its journal and its run directory stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.host import arena_directory
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.checkpoint.places import CheckpointSource
from elastichost.errors import HostLostError, ModelLostError, NonFiniteError, ProtocolError, SampleRange
from elastichost.runs.events import DirectoryLeftBehind, RollBackRefused, RolledBack
from elastichost.runs.result import RollBack
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.launch.events import AgentLost
from elastichost.supervisor.launch.shutdown import remove_directories
from elastichost.supervisor.ledger.checkpoint_record import find_checkpoint, read_record
from elastichost.supervisor.startup.resume_source import ResumeSource, barred

__all__ = ["MAX_ROLL_BACKS", "refusal", "refusal_after_loss", "roll_back"]

MAX_ROLL_BACKS = 3


# --- the decision: pure -----------------------------------------------------------------------------------------------


def refusal(failed: SampleRange | None, earlier: Sequence[RollBack]) -> str:
    """Why the run must fail instead of rolling back; "": it may roll back. earlier: roll-backs of this run so far."""
    if failed is None:
        return "the batch that failed is not recorded"
    if len(barred(earlier)) >= MAX_ROLL_BACKS:
        return f"the run was already rolled back {len(earlier)} times"
    if any(failed.overlaps(before) for before in barred(earlier)):
        return f"{failed} were already left out after an earlier roll-back"
    return ""


def refusal_after_loss(newest: str, earlier: Sequence[RollBack]) -> str:
    """Why a run that has lost its model goes back no more; "": it may, MAX_ROLL_BACKS times to each checkpoint. newest:
    the name of the newest checkpoint; "": there is none."""
    times = sum(before.checkpoint == newest and not before.stop for before in earlier)
    return f"it has lost its model {times} times since that checkpoint" if times >= MAX_ROLL_BACKS else ""


# --- carrying it out ----------------------------------------------------------------------------------------------


def roll_back(
    run: RunContext,
    components: Components,
    error: NonFiniteError | HostLostError | ModelLostError,
    resume_source: ResumeSource,
) -> ResumeSource:
    """Ends all processes, removes the arena, and returns what the run begins from. `components` are closed. Machines
    that are lost meanwhile are not used any more; the plan may still have processes on them.

    Raises `error` when the run may not roll back, CheckpointError when all its checkpoints are damaged.
    """
    reason, source = _refusal_of(run, components, error), _source(run, components, resume_source)
    if not reason and source is None and run.started_from:
        reason = f"it has no checkpoint of its own yet, and began from {run.started_from}"
    if reason:
        run.note(RollBackRefused(reason))
        raise error
    failed = SampleRange(0, 0, 0, 0)  # the loss of a host or a model leaves no samples out
    if isinstance(error, NonFiniteError) and error.samples is not None:
        failed = error.samples
    cause = run.new_cause("roll-back")
    with run.caused_by(cause):
        _end_processes(run)
    found = find_checkpoint(source) if source is not None else None
    trains_anew = resume_source.trains_anew and source is not run.directory.checkpoint_source
    entry = RollBack(
        epoch=failed.epoch,
        unit=failed.unit,
        start=failed.start,
        stop=failed.stop,
        checkpoint=found.directory.name if found is not None else "",
        samples=DenseStore(components.arena).samples_applied() - (0 if trains_anew else _samples_of(found)),
        reason=error.message,
    )
    run.roll_backs.append(entry)
    number = len(barred(run.roll_backs)) if entry.stop else 0
    run.note(RolledBack(entry, number, MAX_ROLL_BACKS), cause)  # a resumed run leaves these positions out too
    _clear_away(run, components)
    return ResumeSource(
        source=source,
        found=found,
        next_lease_id=components.leases.ledger.next_lease_id,
        barred=barred(run.roll_backs),
        trains_anew=trains_anew,
    )


def _refusal_of(run: RunContext, components: Components, error: NonFiniteError | HostLostError | ModelLostError) -> str:
    if isinstance(error, NonFiniteError):
        return refusal(error.samples, run.roll_backs)
    if isinstance(error, ModelLostError):
        newest = components.checkpoints.newest
        return refusal_after_loss(newest.name if newest is not None else "", run.roll_backs)
    return ""


def _end_processes(run: RunContext) -> None:
    """Ends all processes, and drops their events and messages."""
    run.launcher.end_children()
    run.launcher.events()
    for host, launcher in run.machines.launchers.items() if run.machines is not None else ():
        launcher.on_words = None  # the replica of its arena is closed, and words may still arrive
        if launcher.lost and run.uses(host):  # the event of the loss may have been dropped above
            run.lose(AgentLost(host, launcher.host.shown, launcher.lost))
    while True:
        with contextlib.suppress(ProtocolError):
            if run.control.receive() is None:
                break
    for record in tuple(run.fleet):
        if run.keyring is not None:  # the event of its exit, which revokes its key, was dropped above
            run.keyring.revoke(record.process)
        run.fleet.remember(record.process, run.now_s())
    run.deaths.clear()


def _source(run: RunContext, components: Components, resume_source: ResumeSource) -> CheckpointSource | None:
    """Where to look for a checkpoint; None: this run has written none and began from none."""
    newest = components.checkpoints.newest
    if newest is not None and newest.parent in run.directory.checkpoint_source.places:
        return run.directory.checkpoint_source
    if resume_source.found is not None:  # the checkpoint of another run that this run began from
        return CheckpointSource((resume_source.found.directory,))
    return None


def _samples_of(found: FoundCheckpoint | None) -> int:
    return read_record(found.manifest).samples_applied if found is not None else 0


def _clear_away(run: RunContext, components: Components) -> None:
    components.checkpoints.close()
    components.evaluations.close()
    components.memory.close()
    components.arena.close()
    for problem in remove_directories(*run.arenas):
        run.note(DirectoryLeftBehind(problem))
    run.arena = arena_directory(run.run_id)
    run.torn_batches = 0  # the torn rows are removed with the arena
