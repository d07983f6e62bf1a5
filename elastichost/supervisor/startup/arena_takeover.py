"""Takes over the arena of a supervisor that died, so that no trained sample is lost or trained twice.

Theory of operation. A resume first calls `claim_arena`, which holds the arena before the arena reaper removes it. When
the model is described, `take_over_arena` checks whether the arena fits the job, and takes it over. Rows, dense vector
and applied records are as the dead processes left them. Each PS repairs its own rows when it opens the arena, as the
successor of a killed PS does. The ledger is rebuilt from the batches up to the dense vector's version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from elastichost.arena.arena import Arena, read_layout
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.directory_lock import is_led
from elastichost.arena.host import Hold, hold, left_of, read_owner, reclaim, used_bytes
from elastichost.arena.layout import ArenaLayout, plan_layout
from elastichost.arena.owner import is_this_boot, owner_of
from elastichost.arena.recovery.staging import StagingArea, stamp_incarnation
from elastichost.arena.recovery.undo import UndoRecord
from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError, ProtocolError
from elastichost.gpu.memory.held_memory import why_model_is_gone
from elastichost.micro_batches import CREW, CREW_INCARNATION, micro_ranges
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.facts import Lineage, Quarantined, TornBatches
from elastichost.runs.journal import read_journal
from elastichost.runs.journal_replay import ReplayedJournal, replay
from elastichost.specs import ModelSpec, model_difference
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.replay import ledger_of_applied
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.wire.applied import AppliedFold, AppliedRecords, micros_left_out, read_applied_content
from elastichost.wire.facts import CommittedBatch

__all__ = ["ArenaClaim", "TakenOver", "TakeoverRefusal", "claim_arena", "take_over_arena"]

USERS_END_S = 10.0  # longest wait for the end of processes of the dead supervisor; a large arena is unmapped slowly
LOOK_EVERY_S = 0.02

WorkerIncarnation = tuple[int, int]  # (worker, incarnation)


@dataclass(frozen=True, slots=True)
class ArenaClaim:
    """What is left of the run that is resumed. replayed: its journal. held: its arena; None: it cannot be used, for
    this `reason`."""

    replayed: ReplayedJournal
    held: Hold | None = None
    reason: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of memory that the held arena takes; 0 without one."""
        if self.held is None:
            return 0
        return used_bytes(self.held.path)

    def without_arena(self, reason: str) -> ArenaClaim:
        """Releases the arena, and returns the claim without it."""
        self.release()
        return ArenaClaim(self.replayed, None, reason)

    def release(self) -> None:
        """Releases the arena. Unless it was taken over, the arena reaper removes it after keep_arena_s."""
        if self.held is not None:
            self.held.release()


@dataclass(frozen=True, slots=True)
class TakeoverRefusal:
    """Why the arena cannot be taken over, in words. needs_servers: the number of PS with which it could be taken over;
    0: another number does not help."""

    reason: str
    needs_servers: int = 0


@dataclass(frozen=True, slots=True)
class TakenOver:
    """An arena that this supervisor owns now, with the state that belongs to it.

    committed: incarnation -> sequence of its last committed batch, 0 for none, for every worker incarnation of the run.
    staged: incarnation -> PS that may have staged rows of it. torn: incarnations that died within batches and that the
    journal does not count yet.
    """

    arena: Arena
    dense: DenseStore
    ledger: Ledger
    lineage: Lineage
    committed: Mapping[WorkerIncarnation, int]
    staged: Mapping[WorkerIncarnation, frozenset[int]]
    torn: tuple[TornBatches, ...] = ()

    @property
    def left(self) -> tuple[CommittedBatch, ...]:
        """The last committed batches of every incarnation with staged rows, and of the crew of sync mode. PS apply
        staged rows up to these batches, and drop the others."""
        incarnations = sorted({*self.staged, (CREW, CREW_INCARNATION)})
        return tuple(CommittedBatch(*incarnation, self.committed.get(incarnation, 0)) for incarnation in incarnations)


# --- the claim --------------------------------------------------------------------------------------------------


def claim_arena(run_dir: Path, early: Sequence[Hold] = ()) -> ArenaClaim:
    """Holds the arena that the run's last supervisor left, and removes other directories of earlier supervisors. The
    caller has locked the run directory, so these supervisors are dead. Without a usable arena the claim has the reason.

    early: directories that the caller holds already (`hold_left`); all of them but the arena are released.
    """
    claim = _claim(run_dir, {held.path: held for held in early})
    for held in early:
        if held is not claim.held:
            held.release()
    for left in left_of(run_dir):
        is_claimed = str(left.path) == claim.replayed.arena and claim.replayed.hosts == 1
        if not is_claimed:
            _remove_remains(left.path)
    return claim


def _claim(run_dir: Path, early: Mapping[Path, Hold]) -> ArenaClaim:
    journal = run_dir / JOURNAL_FILE
    if not journal.exists():
        return ArenaClaim(ReplayedJournal(), reason="the run has no journal")
    try:
        known = replay(read_journal(journal))
    except msgspec.MsgspecError as error:
        return ArenaClaim(ReplayedJournal(), reason=f"the run's journal cannot be read: {error}")
    if not known.arena:
        return ArenaClaim(known, reason="the run has made no arena yet")
    if known.hosts > 1:
        return ArenaClaim(known, reason=f"its rows lay in the arenas of {known.hosts} hosts, which are not kept")
    return ArenaClaim(known, *_hold(Path(known.arena), run_dir, early))


def _hold(path: Path, run_dir: Path, early: Mapping[Path, Hold]) -> tuple[Hold | None, str]:
    try:
        held = early.get(path) or hold(path)
    except OSError:
        return None, f"{path} does not exist any more"
    if held is None:
        return None, f"another process removes {path} or resumes from it"
    reason = _not_ours(path, run_dir)
    if reason:
        held.release()
        return None, reason
    return held, ""


def _not_ours(path: Path, run_dir: Path) -> str:
    """Why this is not the complete arena of a dead supervisor of this run, in words; "": it is."""
    try:
        owner = read_owner(path)
    except ArenaError as error:
        return str(error)
    if owner.run_dir != str(run_dir):
        return f"{path} belongs to another run, {owner.run_dir}"
    if not is_this_boot(owner):
        return f"{path} was left before the last restart of this host"
    if is_led(path):
        return f"{path} belongs to process {owner.pid}, which is alive"
    try:
        read_layout(path)
    except ArenaError as error:
        return str(error)
    return ""


def _remove_remains(path: Path) -> None:
    try:
        reclaim(path, is_kept=True)
    except ArenaError as error:
        print(f"warning: {error}", flush=True)


# --- the takeover -----------------------------------------------------------------------------------------------


def take_over_arena(
    claim: ArenaClaim,
    run_dir: Path,
    model: ModelSpec,
    seed: int,
    settings: LedgerSettings,
    servers: Sequence[int],
    *,
    in_place: bool,
    micros: int,
    may_be_resident: bool = False,
) -> TakenOver | TakeoverRefusal:
    """Checks whether the held arena fits this job and its record of committed batches, and takes it over.

    servers: PS of the plan. in_place: workers may have updated rows in place before a commit. micros: micro-batches of
    a step of sync mode. may_be_resident: a worker of the plan may have rows in memory of its GPU. After a takeover the
    arena is not held any more, because this process owns it. After a refusal the arena is unchanged, and `claim` still
    holds it. Raises ArenaError when the owner cannot be written.
    """
    held, known = claim.held, claim.replayed
    if held is None:
        return TakeoverRefusal(claim.reason)
    if not known.is_whole:
        return TakeoverRefusal("its rows were not all restored from the checkpoint")
    if known.lineage.data != settings.data:
        return TakeoverRefusal(f"it was trained with data of {known.lineage.data}; the data now has {settings.data}")
    if gone := why_model_is_gone(held.path, may_be_resident=may_be_resident):
        return TakeoverRefusal(gone)
    if misfit := _layout_misfit(read_layout(held.path), model, seed):
        return TakeoverRefusal(misfit)
    if users := _wait_unused(held.path):
        return TakeoverRefusal(f"processes of the old run still use it: pid {', '.join(map(str, users))}")
    try:
        arena = Arena.attach(held.path)
    except ArenaError as error:
        return TakeoverRefusal(str(error))
    found = _recover(arena, held.path, run_dir, known, settings, servers, micros)
    if isinstance(found, TakeoverRefusal):
        arena.close()
        return found
    if in_place:
        found = replace(found, torn=_torn(Watermarks(held.path), found.committed, known.lineage.torn))
    held.take_over(owner_of(os.getpid(), run_dir))
    held.release()
    return found


def _layout_misfit(layout: ArenaLayout, model: ModelSpec, seed: int) -> str:
    if layout.model != model:
        return f"it holds another model: {model_difference(layout.model, model)}"
    if layout.seed != seed:
        return f"it was made with seed {layout.seed}; job.seed is {seed} now"
    if plan_layout(model, seed, layout.memory_bytes, layout.index_key) != layout:
        return "it was made by another version of elastichost"
    return ""


def _wait_unused(path: Path) -> tuple[int, ...]:
    """The pids of processes that still map files of the arena after a wait of at most USERS_END_S."""
    deadline_s = time.monotonic() + USERS_END_S
    while (users := _users(path)) and time.monotonic() < deadline_s:
        time.sleep(LOOK_EVERY_S)
    return users


def _users(path: Path) -> tuple[int, ...]:
    wanted, users = f"{path}/", list[int]()
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if entry.stat().st_uid == os.geteuid() and wanted in Path(entry.path, "maps").read_text(errors="replace"):
                users.append(int(entry.name))
        except OSError:
            continue  # the process has ended, or its maps must not be read
    return tuple(users)


def _recover(
    arena: Arena,
    path: Path,
    run_dir: Path,
    known: ReplayedJournal,
    settings: LedgerSettings,
    servers: Sequence[int],
    micros: int,
) -> TakenOver | TakeoverRefusal:
    dense = DenseStore(arena)
    version = dense.version()
    if version < 1:
        return TakeoverRefusal("its dense vector was never filled")
    try:
        content = read_applied_content(run_dir)
    except ProtocolError as error:
        return TakeoverRefusal(error.message)
    records, fold = content.records[: max(0, version - content.first)], content.fold  # record n made version n + 1
    is_whole = content.first <= version <= content.end and bool((records["sequence"] > 0).all())
    if not is_whole:
        return TakeoverRefusal(f"applied.bin does not contain all {version - 1} batches that were committed")
    samples = int(records["samples"].sum()) + (fold.samples if fold is not None else 0)
    if samples != dense.samples_applied():
        return TakeoverRefusal(
            f"applied.bin has {samples} committed samples, but its dense vector has {dense.samples_applied()}"
        )
    steps = records if fold is None else np.concatenate([fold.left_out_records(), records])
    quarantined = _with_left_out(known.lineage.quarantined, steps, micros)
    try:
        ledger = ledger_of_applied(
            settings,
            records,
            quarantined,
            fold=fold,
            epoch=known.lineage.epoch,
            next_lease_id=known.next_lease_id,
            stopped_early=known.lineage.stopped_early,
        )
    except ProtocolError as error:
        return TakeoverRefusal(f"applied.bin contradicts the data or itself: {error.message}")
    staged = _staged(path, len(arena.model.tables), servers)
    if isinstance(staged, TakeoverRefusal):
        return staged
    committed = {**dict.fromkeys(known.incarnations_of("worker"), 0), **_committed(records, fold)}
    return TakenOver(arena, dense, ledger, known.lineage, committed, staged)


def _with_left_out(
    quarantined: tuple[Quarantined, ...], records: AppliedRecords, micros: int
) -> tuple[Quarantined, ...]:
    """Adds the micro-batches that the records of steps have as left out and that the journal lacks."""
    known = {(entry.epoch, entry.unit, entry.start) for entry in quarantined}
    found = list(quarantined)
    for record in records[records["left_out"].any(axis=1)]:
        ranges = micro_ranges(int(record["start"]), int(record["stop"]), micros)
        for micro in (one for one in micros_left_out(record) if one < len(ranges)):
            place = (int(record["epoch"]), int(record["unit"]), ranges[micro][0])
            if place not in known:
                found.append(Quarantined(*place, ranges[micro][1], 0))
    return tuple(found)


def _committed(records: AppliedRecords, fold: AppliedFold | None) -> dict[WorkerIncarnation, int]:
    """Incarnation -> sequence of its last committed batch. The dense vector has only the newest incarnation of each
    worker, so the records are read."""
    keys = records["worker"].astype(np.int64) << 32 | records["incarnation"].astype(np.int64)
    incarnations, numbers = np.unique(keys, return_inverse=True)
    newest = np.zeros(len(incarnations), np.int64)
    np.maximum.at(newest, numbers, records["sequence"].astype(np.int64))
    pairs = zip(incarnations.tolist(), newest.tolist(), strict=True)
    before = fold.committed if fold is not None else ()
    return {
        **{(worker, incarnation): sequence for worker, incarnation, sequence in before},
        **{(incarnation >> 32, incarnation & 0xFFFFFFFF): sequence for incarnation, sequence in pairs},
    }


def _torn(
    watermarks: Watermarks, committed: Mapping[WorkerIncarnation, int], counted: Sequence[TornBatches]
) -> tuple[TornBatches, ...]:
    """Incarnations that began to update rows in place for batches that were never committed. counted: those that the
    journal counts already; they are left out."""
    known = {(torn.worker, torn.incarnation) for torn in counted}
    begun = {
        incarnation: watermarks.begun(*incarnation) - sequence for incarnation, sequence in sorted(committed.items())
    }
    return tuple(
        TornBatches(*incarnation, batches)
        for incarnation, batches in begun.items()
        if batches > 0 and incarnation not in known
    )


def _staged(
    path: Path, tables: int, servers: Sequence[int]
) -> dict[WorkerIncarnation, frozenset[int]] | TakeoverRefusal:
    """Incarnation -> PS that have staged rows of it. A refusal when the plan lacks one of these PS, or a PS that was
    killed while it applied a push."""
    found: dict[WorkerIncarnation, set[int]] = {}
    for server in sorted({int(entry.name.split("-")[1]) for entry in path.glob("staged-*")}):
        area = StagingArea(path, server, tables)
        for worker in area.waiting():
            found.setdefault((worker, stamp_incarnation(area.stamp(worker))), set()).add(server)
        area.close()
    left = {int(entry.name.split("-")[1]) for entry in path.glob("undo-*") if _is_within(path, entry, tables)}
    missing = sorted(left.union(*found.values()) - set(servers))
    if missing:
        return TakeoverRefusal(
            f"PS {', '.join(map(str, missing))} of it may hold rows that are not applied yet, but the plan has only "
            f"{len(servers)} PS",
            needs_servers=max(missing) + 1,
        )
    return {incarnation: frozenset(holders) for incarnation, holders in found.items()}


def _is_within(path: Path, entry: Path, tables: int) -> bool:
    """Whether the PS of this undo record was killed while it applied a push."""
    record = UndoRecord(path, int(entry.name.split("-")[1]), tables)
    try:
        return record.unfinished() is not None
    finally:
        record.close()
