"""Checkpoints of a run: performs the effects of `cut`, commits manifests, and reads back what a resumed run needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.arena.dense import DenseState, DenseStore
from elastichost.checkpoint.files import remove_tree
from elastichost.checkpoint.format import (
    BlockRecord,
    FoundCheckpoint,
    Manifest,
    checkpoint_name,
    commit,
    latest,
    load_manifest,
    new_staging,
    read_block,
    retain,
)
from elastichost.errors import CheckpointError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.sharding import bucket_count
from elastichost.specs import ModelSpec
from elastichost.supervisor.cut import Abandon, Commit, Cut, CutEffect, SendPause, SendProceed, TakeCopies
from elastichost.supervisor.journal import utc_now
from elastichost.supervisor.judging import JudgeMemory
from elastichost.supervisor.ledger import Ledger
from elastichost.supervisor.ledger_facts import LedgerState
from elastichost.supervisor.lifecycle import State
from elastichost.supervisor.observed import ProcessRecord
from elastichost.supervisor.run import Run
from elastichost.wire.control import Pause, Proceed, Snapshot, SnapshotCut, SnapshotWritten

__all__ = ["Checkpointer", "RunRecord", "find_checkpoint", "load_dense", "read_record"]

RETRY_S = 2.0
CUT_TIMEOUT_S = 300.0
MAX_FAILED_IN_A_ROW = 3


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The supervisor's part of a checkpoint; the manifest carries it as its `ledger`."""

    ledger: LedgerState
    dense_version: int
    dense_step: int  # updates of the dense optimizer so far (Adam's bias correction)
    samples_applied: int
    judge: JudgeMemory = JudgeMemory()


@dataclass(slots=True)
class _Open:
    """The cut that is being taken."""

    cut: Cut
    staging: Path
    is_final: bool
    accounted: int = 0
    trained: int = 0
    epoch: int = 0
    record: RunRecord | None = None
    blocks: tuple[BlockRecord, ...] = ()


class Checkpointer:
    """One checkpoint at a time. `not_before_s`: when the next periodic one is due."""

    def __init__(
        self,
        run: Run,
        model: ModelSpec,
        ledger: Ledger,
        dense: DenseStore,
        judged: Callable[[], JudgeMemory],
        committed_step: Callable[[], int],
    ) -> None:
        self._committed_step = committed_step
        self._run, self._model, self._ledger, self._dense, self._judged = run, model, ledger, dense, judged
        self._number = 0
        self._open: _Open | None = None
        self._failed_in_a_row = 0
        self.checkpointed_at: int | None = None
        self.newest: Path | None = None
        self.not_before_s = run.now_s() + run.job.checkpoint.every_s
        self.retry_not_before_s = 0.0
        self._abandoned: list[Path] = []

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def holds_workers(self) -> bool:
        return self._open is not None and self._open.cut.holds_workers

    # --- events ---------------------------------------------------------------------------------------------

    def begin(self, reason: str, *, is_final: bool) -> None:
        self._number += 1
        staging = new_staging(self._run.directory.checkpoints, self._number)
        self._open = _Open(Cut(self._number), staging, is_final)
        self._run.note("decision", f"checkpoint: {reason}", data={"cut": self._number})
        # A worker that drains may be within its last batch: its Drained is as good as Paused.
        at_work = (State.READY, State.RUNNING, State.DRAINING)
        workers = [record.process for record in self._run.fleet.live("worker") if record.state in at_work]
        servers = [record.process for record in self._run.fleet.working("server")]
        self._perform(self._open.cut.begin(workers, servers, self._run.now_s()))

    def paused(self, record: ProcessRecord, cut: int) -> None:
        if self._open is not None:
            self._perform(self._open.cut.paused(record.process, cut, self._run.now_s()))

    def drained(self, record: ProcessRecord) -> None:
        """It stands at a batch boundary, everything reported, and holds nothing."""
        if self._open is not None:
            self._perform(self._open.cut.paused(record.process, self._open.cut.number, self._run.now_s()))

    def copied(self, record: ProcessRecord, message: SnapshotCut) -> None:
        if self._open is not None:
            effects = self._open.cut.copied(record.process, message.cut, message.rows, message.bytes, self._run.now_s())
            self._perform(effects)

    def written(self, record: ProcessRecord, message: SnapshotWritten, frames: tuple[memoryview, ...]) -> None:
        """Raises ProtocolError when the frame is no list of block records."""
        if self._open is None or message.cut != self._open.cut.number:
            return
        try:
            blocks = msgspec.msgpack.decode(frames[0], type=tuple[BlockRecord, ...])
        except (IndexError, msgspec.MsgspecError) as error:
            raise ProtocolError(f"{record.process}: SnapshotWritten without block records: {error}") from error
        self._open.blocks += blocks
        self._perform(self._open.cut.written(record.process, message.cut, message.dense_version))

    def lost(self, record: ProcessRecord) -> None:
        if self._open is not None:
            self._perform(self._open.cut.lost(record.process))

    def close(self) -> None:
        """Removes what abandoned checkpoints left. Call when every PS has ended."""
        abandoned = [*self._abandoned, *([self._open.staging] if self._open is not None else [])]
        for staging in abandoned:
            remove_tree(staging)

    def tick(self, now_s: float) -> None:
        if self._open is not None and now_s - self._open.cut.began_s > CUT_TIMEOUT_S:
            self._perform(self._open.cut.abandon(f"not done after {CUT_TIMEOUT_S:g} s"))

    # --- effects --------------------------------------------------------------------------------------------

    def _perform(self, effects: tuple[CutEffect, ...]) -> None:
        for effect in effects:
            match effect:
                case SendPause(cut=cut, workers=workers):
                    self._run.send_all(workers, Pause(cut))
                case TakeCopies(cut=cut, servers=servers):
                    self._take_copies(cut, servers)
                case SendProceed(cut=cut, workers=workers):
                    self._run.send_all(workers, Proceed(cut))
                case Commit():
                    self._commit()
                case Abandon(reason=reason):
                    self._abandon(reason)

    def _take_copies(self, cut: int, servers: tuple[ProcessId, ...]) -> None:
        assert self._open is not None
        step = self._committed_step()
        ledger, dense = self._ledger, self._dense.state_copy()
        self._open.record = RunRecord(ledger.state(), dense.version, dense.step, dense.samples_applied, self._judged())
        self._open.accounted, self._open.trained, self._open.epoch = (
            ledger.samples_accounted,
            ledger.trained,
            ledger.epoch,
        )
        self._run.send_all(servers, Snapshot(cut, str(self._open.staging), step))

    def _commit(self) -> None:
        assert self._open is not None
        done, self._open = self._open, None
        final = self._run.directory.checkpoints / checkpoint_name(done.trained)
        try:
            commit(done.staging, final, self._manifest(done))
            removed = retain(self._run.directory.checkpoints, self._run.job.checkpoint.keep)
        except CheckpointError as error:
            self._failed(done, error)
            return
        now_s, cut = self._run.now_s(), done.cut
        stall_s = (cut.proceeded_s or now_s) - cut.began_s
        self._failed_in_a_row = 0
        self.checkpointed_at, self.newest = done.accounted, final
        self.not_before_s = now_s + self._run.job.checkpoint.every_s
        self._run.note(
            "checkpoint",
            f"{final.name}: {cut.rows} rows, {cut.bytes / 1e6:.1f} MB in {now_s - cut.began_s:.2f} s; "
            f"training stood still for {stall_s:.2f} s",
            now=True,
            data={
                "path": str(final),
                "samples": done.accounted,
                "bytes": cut.bytes,
                "stall_s": stall_s,
                "removed": len(removed),
            },
        )

    def _manifest(self, done: _Open) -> Manifest:
        assert done.record is not None
        return Manifest(
            job_name=self._run.job.job.name,
            seed=self._run.job.job.seed,
            samples_trained=done.trained,
            epoch=done.epoch,
            ledger=msgspec.Raw(msgspec.json.encode(done.record)),
            model=self._model,
            bucket_counts=tuple(bucket_count(table) for table in self._model.tables),
            dense_version=done.record.dense_version,
            blocks=done.blocks,
            created_utc=utc_now(),
        )

    def _failed(self, done: _Open, error: CheckpointError) -> None:
        """A periodic checkpoint may fail now and then; the last one, or several in a row, may not."""
        self._failed_in_a_row += 1
        if done.is_final or self._failed_in_a_row >= MAX_FAILED_IN_A_ROW:
            raise error
        self._run.note("checkpoint_failed", str(error))
        self._later(done)

    def _abandon(self, reason: str) -> None:
        assert self._open is not None
        done, self._open = self._open, None
        self._run.note("checkpoint_abandoned", reason)
        self._later(done)

    def _later(self, done: _Open) -> None:
        self._abandoned.append(done.staging)  # a PS may still be writing into it
        self.retry_not_before_s = self._run.now_s() + RETRY_S


def find_checkpoint(source: Path, *, verify: bool = True) -> FoundCheckpoint:
    """`source`: a run directory, its checkpoints, or one checkpoint. `verify` reads its blocks, too. Raises
    CheckpointError when there is none."""
    source = source.resolve()
    if (source / "MANIFEST.json").exists():
        return FoundCheckpoint(source, load_manifest(source))
    for place in (source / "checkpoints", source):
        found = latest(place, verify=verify) if place.is_dir() else None
        if found is not None:
            return found
    raise CheckpointError(f"{source} holds no checkpoint", hint="run the job anew: nothing of it was saved yet")


def read_record(manifest: Manifest) -> RunRecord:
    """Raises CheckpointError when the manifest carries no record of a run."""
    try:
        return msgspec.json.decode(manifest.ledger, type=RunRecord)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"the checkpoint's record of the run cannot be read: {error}") from error


def load_dense(found: FoundCheckpoint, record: RunRecord) -> DenseState:
    """The dense vector and its optimizer state. Raises CheckpointError naming the block."""
    arrays: dict[str, npt.NDArray[np.float32]] = {}
    for block in found.manifest.blocks:
        if block.kind in ("dense", "dense_state"):
            arrays[block.kind] = np.asarray(read_block(found.directory, block), dtype=np.float32)
    if "dense" not in arrays or "dense_state" not in arrays:
        raise CheckpointError(f"{found.directory} lacks the dense vector or its optimizer state")
    return DenseState(
        arrays["dense"], arrays["dense_state"], record.dense_version, record.dense_step, record.samples_applied
    )
