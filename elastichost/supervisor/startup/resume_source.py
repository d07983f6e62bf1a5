"""Determines where a run starts from: the arena of its dead supervisor, its checkpoint, or the checkpoint of another
run.

A `ResumeSource` names the places. `starting_point` reads and checks the checkpoint, so that a checkpoint that does not
fit is found before anything that is left of the run is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.arena.dense.store import DenseState
from elastichost.checkpoint.format import FoundCheckpoint, set_aside_newer
from elastichost.checkpoint.places import CheckpointSource
from elastichost.errors import CheckpointError, SampleRange
from elastichost.host.cpu_features import present_cpu
from elastichost.runs.cpu_check import require_same_cpu
from elastichost.runs.events import StartedFromCheckpoint, Warned
from elastichost.runs.facts import Lineage
from elastichost.runs.result import RollBack
from elastichost.specs import ModelSpec, model_difference
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.ledger.checkpoint_record import RunRecord, find_checkpoint, load_dense, read_record
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.state import LedgerSettings, LedgerState
from elastichost.supervisor.startup.applied_restart import keep_applied
from elastichost.supervisor.startup.arena_takeover import ArenaClaim

__all__ = ["ResumeSource", "StartingPoint", "barred", "look_for_checkpoint", "newest_kept", "starting_point"]

NEW = Lineage()


@dataclass(frozen=True, slots=True)
class ResumeSource:
    """Where a run starts from; without any value it is a new run.

    source: the places of the run's checkpoints, or the source that the user named with `--from`. claim: of a run that
    is resumed. found: the checkpoint; None while `claim` holds an arena, because no checkpoint may be needed.
    next_lease_id: a lease id above all that were granted before. barred: positions that are not trained any more.
    trains_anew: the run takes rows and dense part from the checkpoint, and trains all of its data.
    """

    source: CheckpointSource | None = None
    claim: ArenaClaim | None = None
    found: FoundCheckpoint | None = None
    next_lease_id: int = 1
    barred: tuple[SampleRange, ...] = ()
    trains_anew: bool = False


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The values with which a new arena is filled. found, dense: None for a new run. record: the supervisor's part of
    the checkpoint; None: the run continues no checkpoint, because it is new or trains all of its data."""

    ledger: Ledger
    found: FoundCheckpoint | None = None
    dense: DenseState | None = None
    lineage: Lineage = NEW
    record: RunRecord | None = None


def barred(earlier: Iterable[RollBack]) -> tuple[SampleRange, ...]:
    """The ranges of samples that the run leaves out from now on."""
    ranges = (SampleRange(entry.epoch, entry.unit, entry.start, entry.stop) for entry in earlier)
    return tuple(found for found in ranges if found.start < found.stop)


def look_for_checkpoint(source: CheckpointSource, claim: ArenaClaim | None) -> FoundCheckpoint:
    """The newest intact checkpoint. Raises CheckpointError, whose message also has the reason why there is no arena,
    when there is none."""
    try:
        return find_checkpoint(source)
    except CheckpointError as error:
        if claim is None or claim.replayed.has_ended or claim.held is not None:
            raise
        raise CheckpointError(f"{error.message}, and there is no arena: {claim.reason}", hint=error.hint) from error


def newest_kept(resume_source: ResumeSource) -> tuple[Path, RunRecord] | None:
    """The newest checkpoint and the supervisor's part of it; None: there is none. Its blocks are not verified, because
    nothing is read from them now."""
    if resume_source.source is not None:
        with contextlib.suppress(CheckpointError):
            found = find_checkpoint(resume_source.source, verify=False)
            return found.directory, read_record(found.manifest)
    return None


def starting_point(
    run: RunContext, model: ModelSpec, settings: LedgerSettings, resume_source: ResumeSource, why_not_arena: str
) -> StartingPoint:
    """Reads and checks the checkpoint that the run starts from. why_not_arena: why the arena was not taken over.

    Raises CheckpointError when there is no checkpoint or it does not fit the model or the data, and CpuDiffersError.
    An arena that is left of the run is then unchanged.
    """
    try:
        point = _read(run, model, settings, resume_source)
    except CheckpointError as error:
        held = resume_source.claim.held if resume_source.claim is not None else None
        if held is None:
            raise
        kept_s = run.job.supervision.keep_arena_s
        raise CheckpointError(
            f"{error.message}; the run's arena {held.path} does not fit either ({why_not_arena}), and is left as it is",
            hint=f"{error.hint}; the arena is kept for another {kept_s:g} s (supervision.keep_arena_s)",
        ) from error
    if point.found is not None:
        _tell(run, point.found, point.lineage)
        if resume_source.source not in (None, run.directory.checkpoint_source):
            _set_aside_newer(run, 0 if resume_source.trains_anew else point.found.manifest.samples_trained)
    run.started_from = point.lineage.started_from
    return point


def _read(run: RunContext, model: ModelSpec, settings: LedgerSettings, resume_source: ResumeSource) -> StartingPoint:
    found = resume_source.found
    if found is None and resume_source.source is not None:
        found = look_for_checkpoint(resume_source.source, resume_source.claim)
    if found is None:
        return StartingPoint(_ledger(settings, Ledger(settings).state(), resume_source))
    if not found.manifest.model.is_same_model(model):
        raise CheckpointError(
            f"{found.directory} holds another model: {model_difference(found.manifest.model, model)}",
            hint="use the model, tables and columns that it was trained with",
        )
    require_same_cpu(run.job, found.manifest.cpu, present_cpu(), str(found.directory))
    record = read_record(found.manifest)
    dense = load_dense(found, record)
    if resume_source.trains_anew:
        anew = DenseState(dense.vector, dense.state, version=1, step=dense.step, samples_applied=0)
        ledger = _ledger(settings, Ledger(settings).state(), resume_source)
        return StartingPoint(
            ledger, found, anew, Lineage(settings.data, started_from=_started_from(run, found, resume_source))
        )
    ledger, left = _ledger(settings, record.ledger, resume_source), record.ledger
    keep_applied(run.directory.path, settings, record, is_own=_is_own(run, found))
    lineage = Lineage(
        settings.data,
        ledger.epoch,
        left.quarantined,
        left.dropped > 0,
        record.evaluations,
        lookups=record.lookups,
        started_from=_started_from(run, found, resume_source),
    )
    return StartingPoint(ledger, found, dense, lineage, record)


def _is_own(run: RunContext, found: FoundCheckpoint) -> bool:
    return found.manifest.run_id == run.directory.identity.run_id


def _started_from(run: RunContext, found: FoundCheckpoint, resume_source: ResumeSource) -> str:
    """The checkpoint of another run that this run started from, in words; "": none."""
    if not _is_own(run, found):
        return f"{found.directory} of run {found.manifest.run_id} (job {found.manifest.job_name})"
    known = resume_source.claim.replayed.lineage.started_from if resume_source.claim is not None else ""
    return run.started_from or known


def _tell(run: RunContext, found: FoundCheckpoint, lineage: Lineage) -> None:
    for warning in found.warnings:
        run.note(Warned(warning))
    if _is_own(run, found):
        run.note(StartedFromCheckpoint(found.directory.name))
    else:
        run.note(StartedFromCheckpoint(lineage.started_from, is_foreign=True))


def _set_aside_newer(run: RunContext, samples_trained: int) -> None:
    """The user named the checkpoint to start from: newer ones of this run belong to what it has given up."""
    for place in run.directory.checkpoint_source.places:
        for path in set_aside_newer(place, samples_trained):
            run.note(Warned(f"a checkpoint of this run is newer than its new start, and is renamed to {path}"))


def _ledger(settings: LedgerSettings, state: LedgerState, resume_source: ResumeSource) -> Ledger:
    """The ledger in this state, without the barred positions. Raises CheckpointError if the state is of other data."""
    number = max(state.next_lease_id, resume_source.next_lease_id)
    ledger = Ledger.from_state(settings, msgspec.structs.replace(state, next_lease_id=number))
    ledger.bar(resume_source.barred)
    return ledger
