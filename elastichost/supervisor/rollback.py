"""Back to the newest good checkpoint: with `train.non_finite = "roll_back"`, and on without the batch that failed; in
sync mode when a host is lost, and on without that.

Everything trained since then is given up, with an exact count: all processes are ended, the arena is made anew, and
the run begins from the checkpoint (or from its beginning, when it has none yet) as a resumed one does. The supervisor,
its journal and its run directory stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.host import arena_directory
from elastichost.checkpoint.format import FoundCheckpoint
from elastichost.checkpoint.places import CheckpointSource
from elastichost.errors import HostLostError, NonFiniteError, ProtocolError, SampleRange
from elastichost.runs.events import DirectoryLeftBehind, RollBackRefused, RolledBack
from elastichost.runs.result import RollBack
from elastichost.supervisor.components import Components
from elastichost.supervisor.context import Run
from elastichost.supervisor.launch.events import AgentLost
from elastichost.supervisor.launch.shutdown import remove_directories
from elastichost.supervisor.ledger.checkpoint_record import find_checkpoint, read_record
from elastichost.supervisor.startup.resume_source import ResumeSource

__all__ = ["MAX_ROLL_BACKS", "barred", "refusal", "roll_back"]

MAX_ROLL_BACKS = 3


# --- the decision: pure -----------------------------------------------------------------------------------------------


def refusal(failed: SampleRange | None, earlier: Sequence[RollBack]) -> str:
    """Why the job ends instead; "" when it goes back. earlier: what this run has rolled back before."""
    if failed is None:
        return "it is not known which batch it was"
    if len(barred(earlier)) >= MAX_ROLL_BACKS:
        return f"the run was rolled back {len(earlier)} times already"
    if any(failed.overlaps(before) for before in barred(earlier)):
        return f"{failed} were left out already"
    return ""


def barred(earlier: Iterable[RollBack]) -> tuple[SampleRange, ...]:
    """What is not trained any more."""
    ranges = (SampleRange(entry.epoch, entry.unit, entry.start, entry.stop) for entry in earlier)
    return tuple(found for found in ranges if found.start < found.stop)


# --- the deed -----------------------------------------------------------------------------------------------------


def roll_back(
    run: Run, components: Components, error: NonFiniteError | HostLostError, resume_source: ResumeSource
) -> ResumeSource:
    """Ends what there is, and gives what the run begins anew from. `parts` cannot be used any more. Machines that are
    lost meanwhile are used no more; the plan may still have processes there.

    Raises `error` when the run may not go back, CheckpointError when all its checkpoints are bad.
    """
    failed = SampleRange(0, 0, 0, 0)  # nothing is left out because a host is lost
    if isinstance(error, NonFiniteError):
        reason = refusal(error.samples, run.roll_backs)
        if error.samples is None or reason:
            run.note(RollBackRefused(reason))
            raise error
        failed = error.samples
    cause = run.new_cause("roll-back")
    with run.caused_by(cause):
        _end_processes(run)
    source = _source(run, components, resume_source)
    found = find_checkpoint(source) if source is not None else None
    entry = RollBack(
        epoch=failed.epoch,
        unit=failed.unit,
        start=failed.start,
        stop=failed.stop,
        checkpoint=found.directory.name if found is not None else "",
        samples=DenseStore(components.arena).samples_applied() - _samples_of(found),
        reason=error.message,
    )
    run.roll_backs.append(entry)
    number = len(barred(run.roll_backs)) if entry.stop else 0
    run.note(RolledBack(entry, number, MAX_ROLL_BACKS), cause)  # a resumed run leaves the positions out as well
    _clear_away(run, components)
    return ResumeSource(
        source=source,
        found=found,
        next_lease_id=components.leases.ledger.next_lease_id,
        barred=barred(run.roll_backs),
        trains_anew=resume_source.trains_anew and source is not run.directory.checkpoint_source,
    )


def _end_processes(run: Run) -> None:
    """Nothing that they, or their last words, do counts any more."""
    run.launcher.end_children()
    run.launcher.events()
    for host, launcher in run.machines.launchers.items() if run.machines is not None else ():
        if launcher.lost and run.uses(host):  # whether or not anybody was told
            run.lose(AgentLost(host, launcher.host.shown, launcher.lost))
    while True:
        with contextlib.suppress(ProtocolError):
            if run.control.receive() is None:
                break
    for record in tuple(run.fleet):
        run.fleet.remember(record.process, run.now_s())
    run.deaths.clear()


def _source(run: Run, components: Components, resume_source: ResumeSource) -> CheckpointSource | None:
    """Where checkpoints of this run may be; None: it has made none, and began from none."""
    newest = components.checkpoints.newest
    if newest is not None and newest.parent in run.directory.checkpoint_source.places:
        return run.directory.checkpoint_source
    if resume_source.found is not None:  # that of another run, which it began from
        return CheckpointSource((resume_source.found.directory,))
    return None


def _samples_of(found: FoundCheckpoint | None) -> int:
    return read_record(found.manifest).samples_applied if found is not None else 0


def _clear_away(run: Run, components: Components) -> None:
    components.checkpoints.close()
    components.memory.close()
    components.arena.close()
    for problem in remove_directories(*run.arenas):
        run.note(DirectoryLeftBehind(problem))
    run.arena = arena_directory(run.run_id)
    run.torn_batches = 0  # what was torn is gone with the rows
