"""Going on from the arena of a supervisor that died: nothing trained is lost, and nothing is trained twice.

`claim_arena` holds it, at the very beginning of a resume, before the arena reaper removes it. `take_over_arena` looks
whether it fits once the model is known, and takes it over. Its rows, dense vector and applied records are as its
processes left them: the PS repair what is theirs when they open it, as the successors of killed ones do. The ledger is
rebuilt from the committed batches that the dense vector's version names.
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
from elastichost.arena.host import Hold, hold, left_of, read_owner, reclaim
from elastichost.arena.layout import ArenaLayout, plan_layout
from elastichost.arena.owner import is_this_boot, owner_of
from elastichost.arena.recovery.staging import StagingArea, stamp_incarnation
from elastichost.arena.recovery.undo import UndoRecord
from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError, ProtocolError
from elastichost.micro_batches import CREW, CREW_INCARNATION, micro_ranges
from elastichost.runs.facts import Lineage, Quarantined, TornBatches
from elastichost.runs.journal import read_journal
from elastichost.runs.journal_replay import ReplayedJournal, replay
from elastichost.specs import ModelSpec
from elastichost.supervisor.ledger.ledger import Ledger
from elastichost.supervisor.ledger.replay import ledger_of_applied
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.wire.applied import AppliedFold, AppliedRecords, micros_left_out, read_applied_content
from elastichost.wire.facts import CommittedBatch

__all__ = ["ArenaClaim", "TakenOver", "TakeoverRefusal", "claim_arena", "model_difference", "take_over_arena"]

USERS_END_S = 10.0  # a process with a large arena mapped takes a while to end
LOOK_EVERY_S = 0.02

WorkerIncarnation = tuple[int, int]  # (worker, incarnation)


@dataclass(frozen=True, slots=True)
class ArenaClaim:
    """What is left of the run that is resumed. `held`: its arena, or None, and `reason` says why."""

    replayed: ReplayedJournal
    held: Hold | None = None
    reason: str = ""

    @property
    def bytes(self) -> int:
        """What the arena takes now."""
        if self.held is None:
            return 0
        return sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in os.scandir(self.held.path))

    def without_arena(self, reason: str) -> ArenaClaim:
        """Its arena is let go of."""
        self.release()
        return ArenaClaim(self.replayed, None, reason)

    def release(self) -> None:
        """Lets go of the arena; it is its guardian's again, unless it was taken over."""
        if self.held is not None:
            self.held.release()


@dataclass(frozen=True, slots=True)
class TakeoverRefusal:
    """Why the arena cannot be gone on from, in words. needs_servers: with so many PS it could."""

    reason: str
    needs_servers: int = 0


@dataclass(frozen=True, slots=True)
class TakenOver:
    """An arena that is this supervisor's now. `committed`: the last batch of every worker incarnation that ever
    committed one; `staged`: incarnations of which rows may wait at these PS; `torn`: incarnations that died within
    batches, not counted before."""

    arena: Arena
    dense: DenseStore
    ledger: Ledger
    lineage: Lineage
    committed: Mapping[WorkerIncarnation, int]
    staged: Mapping[WorkerIncarnation, frozenset[int]]
    torn: tuple[TornBatches, ...] = ()

    @property
    def left(self) -> tuple[CommittedBatch, ...]:
        """What counts of what PS may have staged: of every incarnation that left any, and of the crew of sync mode."""
        incarnations = sorted({*self.staged, (CREW, CREW_INCARNATION)})
        return tuple(CommittedBatch(*incarnation, self.committed.get(incarnation, 0)) for incarnation in incarnations)


# --- the claim --------------------------------------------------------------------------------------------------


def claim_arena(run_dir: Path, early: Sequence[Hold] = ()) -> ArenaClaim:
    """Holds the arena that the run's last supervisor left. The caller holds the run directory, so that supervisor is
    dead. Other directories that earlier ones left are removed. Never raises for what it finds.

    early: what the caller holds already (`hold_left`); all but the arena is let go of.
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
    journal = run_dir / "journal.jsonl"
    if not journal.exists():
        return ArenaClaim(ReplayedJournal(), reason="the run has no journal")
    try:
        known = replay(read_journal(journal))
    except msgspec.MsgspecError as error:
        return ArenaClaim(ReplayedJournal(), reason=f"its journal cannot be read: {error}")
    if not known.arena:
        return ArenaClaim(known, reason="it had made no arena")
    if known.hosts > 1:
        return ArenaClaim(known, reason=f"its rows lay in the arenas of {known.hosts} hosts; a checkpoint has them all")
    return ArenaClaim(known, *_hold(Path(known.arena), run_dir, early))


def _hold(path: Path, run_dir: Path, early: Mapping[Path, Hold]) -> tuple[Hold | None, str]:
    try:
        held = early.get(path) or hold(path)
    except OSError:
        return None, f"{path} is there no more"
    if held is None:
        return None, f"{path} is just being removed"
    reason = _not_ours(path, run_dir)
    if reason:
        held.release()
        return None, reason
    return held, ""


def _not_ours(path: Path, run_dir: Path) -> str:
    """ "" when it is the arena of a dead supervisor of this run, and complete."""
    try:
        owner = read_owner(path)
    except ArenaError as error:
        return str(error)
    if owner.run_dir != str(run_dir):
        return f"{path} belongs to {owner.run_dir}"
    if not is_this_boot(owner):
        return f"{path} was left before the host was started again"
    if is_led(path):
        return f"{path} belongs to process {owner.pid}, which lives"
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
) -> TakenOver | TakeoverRefusal:
    """Looks whether the held arena fits this job and its record, and takes it over. servers: PS of the plan. in_place:
    workers may have changed rows themselves, before a commit. micros: micro-batches of a step of sync mode.

    The arena is let go of in both cases, in the second one still held by `claim`. Raises ArenaError when it cannot be
    taken over.
    """
    held, known = claim.held, claim.replayed
    if held is None:
        return TakeoverRefusal(claim.reason)
    if not known.is_whole:
        return TakeoverRefusal("its rows were not all restored from the checkpoint yet")
    if known.lineage.data != settings.data:
        return TakeoverRefusal(f"it is of data with {known.lineage.data}; the data now has {settings.data}")
    if misfit := _layout_misfit(read_layout(held.path), model, seed):
        return TakeoverRefusal(misfit)
    if users := _wait_unused(held.path):
        return TakeoverRefusal(f"processes of the old run still use it: {', '.join(map(str, users))}")
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
        return f"it was made with seed {layout.seed} instead of {seed}"
    if plan_layout(model, seed, layout.memory_bytes, layout.index_key) != layout:
        return "another version of elastichost made it"
    return ""


def _wait_unused(path: Path) -> tuple[int, ...]:
    """Processes that have files of the arena mapped, once they had time to end."""
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
            continue  # it has ended, or is not ours to look at
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
    records, fold = content.records[: max(0, version - content.first)], content.fold  # versions count from 1
    is_whole = content.first <= version <= content.end and bool((records["sequence"] > 0).all())
    if not is_whole:
        return TakeoverRefusal(f"the record of committed batches does not hold all {version - 1}")
    samples = int(records["samples"].sum()) + (fold.samples if fold is not None else 0)
    if samples != dense.samples_applied():
        return TakeoverRefusal(
            f"{samples} samples are recorded as committed, its dense vector has {dense.samples_applied()}"
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
        return TakeoverRefusal(f"the record of committed batches does not fit: {error.message}")
    staged = _staged(path, len(arena.model.tables), servers)
    if isinstance(staged, TakeoverRefusal):
        return staged
    committed = {**dict.fromkeys(known.incarnations_of("worker"), 0), **_committed(records, fold)}
    return TakenOver(arena, dense, ledger, known.lineage, committed, staged)


def _with_left_out(
    quarantined: tuple[Quarantined, ...], records: AppliedRecords, micros: int
) -> tuple[Quarantined, ...]:
    """Also what the record of a step says was left out, and the supervisor had no time to write down."""
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
    """Sequence of the last committed batch of each incarnation. The dense vector keeps only each worker's newest
    incarnation."""
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
    """Incarnations that changed rows in place for batches that were not committed, and were not counted before."""
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
    """Incarnations with rows that wait at some PS for word whether they are committed, and at which."""
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
            f"PS {', '.join(map(str, missing))} of it may hold rows that are not applied yet, and the plan has "
            f"{len(servers)}",
            needs_servers=max(missing) + 1,
        )
    return {incarnation: frozenset(holders) for incarnation, holders in found.items()}


def _is_within(path: Path, entry: Path, tables: int) -> bool:
    """Whether a PS was killed while it applied pushes."""
    record = UndoRecord(path, int(entry.name.split("-")[1]), tables)
    try:
        return record.unfinished() is not None
    finally:
        record.close()


def model_difference(saved: ModelSpec, present: ModelSpec) -> str:
    """The first thing that is not the same, in words."""
    for name, before, now in (
        ("tables", saved.tables, present.tables),
        ("embeddings", saved.embeddings, present.embeddings),
        ("dense tensors", saved.dense.tensors, present.dense.tensors),
    ):
        if len(before) != len(now):
            return f"{len(before)} {name} instead of {len(now)}"
        for old, new in zip(before, now, strict=True):
            if old != new:
                return f"{name}: {old} instead of {new}"
    return "its columns or labels"
