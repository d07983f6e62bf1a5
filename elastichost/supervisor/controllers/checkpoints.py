"""Takes the checkpoints of a run: performs the effects of `core.checkpoint_cut`, and commits the manifests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from elastichost.arena.dense.store import DenseStore
from elastichost.checkpoint.files import remove_tree
from elastichost.checkpoint.format import (
    BestFigure,
    BlockRecord,
    checkpoint_name,
    commit,
    load_manifest,
    new_staging,
    retain,
)
from elastichost.checkpoint.mirror import Mirror
from elastichost.clock.backoff import backoff_s
from elastichost.errors import CheckpointError, CheckpointSpaceError, ProtocolError
from elastichost.host.cpu_features import present_cpu
from elastichost.plan import ProcessId
from elastichost.runs.events import (
    CheckpointAbandoned,
    CheckpointFailed,
    CheckpointMirrored,
    CheckpointStarted,
    CheckpointWritten,
    DirectoryNotRemoved,
    MirrorFailed,
    MirrorUnfinished,
)
from elastichost.runs.journal import utc_now
from elastichost.runs.result import Lookups
from elastichost.specs import ModelSpec
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.evaluations import EvaluationController
from elastichost.supervisor.controllers.leases import LeaseController
from elastichost.supervisor.controllers.replication import HostMirror, mirror_of
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.supervisor.core.checkpoint_cut import (
    Abandon,
    Commit,
    Cut,
    CutEffect,
    SendPause,
    SendProceed,
    TakeCopies,
)
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.lifecycle import State
from elastichost.supervisor.launch.write_back import WriteBack
from elastichost.supervisor.ledger.checkpoint_record import RunRecord, manifest_of
from elastichost.supervisor.remote.transfers import TransferEnd
from elastichost.wire.control import PauseMsg, ProceedMsg, SnapshotCutMsg, SnapshotMsg, SnapshotWrittenMsg

__all__ = ["CheckpointController", "CheckpointState"]

RETRY_S = 2.0  # wait after a failure; doubled with each further one in a row, up to MAX_RETRY_S
MAX_RETRY_S = 15.0
CUT_TIMEOUT_S = 300.0
MAX_FAILED_IN_A_ROW = 3
Blocks = tuple[BlockRecord, ...]


@dataclass(slots=True)
class _OpenCut:
    """The open cut, its staging directory, and what was recorded for its manifest."""

    cut: Cut
    staging: Path
    is_final: bool
    accounted: int = 0
    trained: int = 0
    epoch: int = 0
    record: RunRecord | None = None
    blocks: Blocks = ()
    best: BestFigure | None = None  # the weights are those of the best evaluation so far
    failure: CheckpointError | None = None  # a PS could not write its file


@dataclass(slots=True)
class CheckpointState:
    """The open cut; None: no checkpoint is open. The work gate reads it."""

    open: _OpenCut | None = None

    @property
    def holds_workers(self) -> bool:
        return self.open is not None and self.open.cut.holds_workers


class CheckpointController:
    """Takes one checkpoint at a time. not_before_s: when the next periodic one is due."""

    def __init__(
        self,
        run: RunContext,
        state: CheckpointState,
        model: ModelSpec,
        dense: DenseStore,
        leases: LeaseController,
        evaluations: EvaluationController,
        sharding: ShardMapController,
        lookups: Callable[[], Lookups],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._run, self._state, self._model, self._dense, self._ledger = run, state, model, dense, leases.ledger
        self._leases, self._evaluations, self._sharding = leases, evaluations, sharding
        self._lookups, self._is_stopping = lookups, is_stopping
        self._number, self._cause, self._failed_in_a_row = 0, "", 0
        self.checkpointed_at: int | None = None
        self.newest: Path | None = None
        self.not_before_s = run.now_s() + run.job.checkpoint.every_s
        self.retry_not_before_s = 0.0
        self._mirror = mirror_of(run)
        self._write_back = WriteBack(run.arena, dense.version, run.directory.path / "logs", self._fail_cut)

    def recall(self, newest: Path, accounted: int) -> None:
        """A resumed run has this newest checkpoint. accounted: samples that it accounts for. The checkpoint is copied
        to the mirror if the mirror does not have it. One of another run counts as none: no resume looks for it."""
        is_own = newest.parent in self._run.directory.checkpoint_source.places
        self.newest, self.checkpointed_at = newest, accounted if is_own else None
        is_there = isinstance(mirror := self._mirror, Mirror) and (mirror.directory / newest.name).exists()
        if mirror is not None and is_own and not is_there:
            mirror.copy(newest)

    @property
    def is_mirroring(self) -> bool:
        return self._mirror is not None and self._mirror.is_busy

    @property
    def is_open(self) -> bool:
        return self._state.open is not None

    @property
    def holds_workers(self) -> bool:
        return self._state.holds_workers

    # --- events ---------------------------------------------------------------------------------------------

    def begin(self, reason: str, *, is_final: bool) -> None:
        """Opens a cut. Raises CheckpointError when no staging directory can be made and the run needs this one."""
        self._number += 1
        self._cause = self._run.new_cause("checkpoint")
        try:
            staging = new_staging(self._run.directory.checkpoints, self._number, self._run.run_id)
        except CheckpointError as error:
            self._failed(error, is_final=is_final)
            return
        self._state.open = _OpenCut(Cut(self._number), staging, is_final)
        self._run.note(CheckpointStarted(self._number, reason), self._cause)
        # A worker that drains may be in its last batch, so it takes part; its Drained counts as Paused.
        at_work = (State.READY, State.RUNNING, State.DRAINING)
        workers = [record.process for record in self._run.fleet.live("worker") if record.state in at_work]
        # A PS without buckets has nothing to copy, and may be about to stop or have pages left to free.
        owners = self._sharding.shard_map.servers()
        servers = [record.process for record in self._run.fleet.working("server") if record.process.index in owners]
        self._perform(self._state.open.cut.begin(workers, servers, self._run.now_s()))

    def paused(self, record: ProcessRecord, cut: int) -> None:
        if self._state.open is not None:
            self._perform(self._state.open.cut.paused(record.process, cut, self._run.now_s()))

    def drained(self, record: ProcessRecord) -> None:
        """A drained worker stands at a batch boundary and has reported all its progress, so it counts as paused."""
        if self._state.open is not None:
            self._perform(self._state.open.cut.paused(record.process, self._state.open.cut.number, self._run.now_s()))

    def copied(self, record: ProcessRecord, message: SnapshotCutMsg) -> None:
        if self._state.open is not None:
            copied = record.process, message.cut, message.rows, message.bytes
            self._perform(self._state.open.cut.copied(*copied, self._run.now_s()))

    def written(self, record: ProcessRecord, message: SnapshotWrittenMsg, frames: tuple[memoryview, ...]) -> None:
        """A PS has written its file, or reports why it could not. Raises ProtocolError when the frame is no list of
        block records, CheckpointError when the file could not be written and the run needs this checkpoint."""
        if self._state.open is None or message.cut != self._state.open.cut.number:
            return
        if message.failure:
            kind = CheckpointSpaceError if message.is_out_of_space else CheckpointError
            self._fail_cut(kind(f"{record.process}: {message.failure}", hint=message.hint))
            return
        try:
            blocks = msgspec.msgpack.decode(frames[0], type=Blocks)
        except (IndexError, msgspec.MsgspecError) as error:
            raise ProtocolError(f"{record.process} sent SnapshotWrittenMsg without block records: {error}") from error
        if record.spec.host in self._run.elsewhere:
            self._fetch(record, message, blocks)
        else:
            self._whole(record.process, message, blocks, TransferEnd(), is_lost=False)

    def _fail_cut(self, error: CheckpointError) -> None:
        """The open cut cannot be completed."""
        assert self._state.open is not None
        self._state.open.failure = error
        self._perform(self._state.open.cut.abandon(error.message))

    def _fetch(self, record: ProcessRecord, message: SnapshotWrittenMsg, blocks: Blocks) -> None:
        """Copies the file that a PS of another machine has written to this machine."""
        assert self._state.open is not None and self._run.machines is not None
        launcher, name = self._run.machines.launchers[record.spec.host], f"server-{record.process.index}.bin"
        launcher.files.fetch(
            f"{_elsewhere(self._state.open)}/{name}",
            self._state.open.staging / name,
            lambda end: self._whole(record.process, message, blocks, end, is_lost=bool(launcher.lost)),
        )

    def _whole(
        self, server: ProcessId, message: SnapshotWrittenMsg, blocks: Blocks, end: TransferEnd, *, is_lost: bool
    ) -> None:
        """The file of a PS is complete on this machine, or could not be copied. is_lost: its machine is lost: the run
        goes on without it, so the checkpoint has not failed, and is taken again."""
        if self._state.open is None or message.cut != self._state.open.cut.number:
            return
        if end.problem:
            if not is_lost:
                kind = CheckpointSpaceError if end.is_out_of_space else CheckpointError
                self._state.open.failure = kind(f"{server}: {end.problem}")
            self._perform(self._state.open.cut.abandon(end.problem))
            return
        self._state.open.blocks += blocks
        self._perform(self._state.open.cut.written(server, message.cut, message.dense_version))

    def lost(self, record: ProcessRecord) -> None:
        """An incarnation has ended."""
        if self._state.open is not None:
            self._perform(self._state.open.cut.lost(record.process))

    def close(self) -> None:
        """Removes an unfinished checkpoint, and cancels a copy to the mirror. Call it when every PS has ended."""
        self._write_back.cancel()
        if self._state.open is not None:
            self._remove(self._state.open.staging)
        if self._mirror is not None:
            if self._mirror.close():
                self._run.note(MirrorUnfinished(str(self._mirror.directory)))
            self._tell_mirrored(self._mirror)

    def tick(self, now_s: float) -> None:
        """Journals copies to the mirror, and abandons a cut that holds the workers too long. Raises ModelLostError."""
        if self._mirror is not None:
            self._tell_mirrored(self._mirror)
        self._write_back.look()
        # Writing the files has no time limit, because workers train meanwhile.
        if self.holds_workers and self._state.open is not None and now_s - self._state.open.cut.began_s > CUT_TIMEOUT_S:
            self._perform(self._state.open.cut.abandon(f"it has held the workers for {CUT_TIMEOUT_S:g} s"))

    # --- effects --------------------------------------------------------------------------------------------

    def _perform(self, effects: tuple[CutEffect, ...]) -> None:
        for effect in effects:
            match effect:
                case SendPause(cut=cut, workers=workers):
                    self._run.send_all(workers, PauseMsg(cut))
                case TakeCopies(cut=cut, servers=servers):
                    self._write_back.when_written(partial(self._take_copies, cut, servers))
                case SendProceed(cut=cut, workers=workers):
                    self._run.send_all(workers, ProceedMsg(cut))
                case Commit():
                    self._commit()
                case Abandon(reason=reason):
                    self._abandon(reason)

    def _take_copies(self, cut: int, servers: tuple[ProcessId, ...]) -> None:
        assert self._state.open is not None
        step = self._leases.committed_step()
        ledger, dense, judged = self._ledger, self._dense.state_copy(), self._evaluations.memory
        self._state.open.record = RunRecord(
            ledger.state(), dense.version, dense.step, dense.samples_applied, judged, self._lookups()
        )
        self._state.open.accounted = ledger.samples_accounted
        self._state.open.best = self._evaluations.best_figure(ledger.samples_accounted, checkpoint_name(ledger.trained))
        self._state.open.trained, self._state.open.epoch = ledger.trained, ledger.epoch
        for server in servers:
            self._run.send(server, SnapshotMsg(cut, self._path_for(server, self._state.open), step))

    def _path_for(self, server: ProcessId, opened: _OpenCut) -> str:
        """The directory that a PS writes its file to, on its own machine."""
        place = self._run.place_elsewhere(server)
        return str(opened.staging) if place is None else f"{place.run_dir}/{_elsewhere(opened)}"

    def _commit(self) -> None:
        assert self._state.open is not None
        done, self._state.open = self._state.open, None
        final = self._run.directory.checkpoints / checkpoint_name(done.trained)
        try:
            assert done.record is not None
            run, of_cut = self._run, (done.record, done.blocks, done.trained, done.epoch, done.best)
            identity, seed = run.directory.identity, run.job.job.seed
            manifest = manifest_of(identity, seed, self._model, *of_cut, utc_now(), present_cpu())
            commit(done.staging, final, manifest)
        except CheckpointError as error:
            self._failed(error, is_final=done.is_final, staging=done.staging)
            return
        now_s, cut = self._run.now_s(), done.cut
        self._failed_in_a_row, self.checkpointed_at, self.newest = 0, done.accounted, final
        self.not_before_s = now_s + self._run.job.checkpoint.every_s
        if self._mirror is not None:
            self._mirror.copy(final)
        self._run.note(
            CheckpointWritten(
                path=str(final),
                samples=done.accounted,
                rows=cut.rows,
                bytes=cut.bytes,
                seconds=now_s - cut.began_s,
                stall_s=(cut.proceeded_s or now_s) - cut.began_s,
                removed=self._remove_old(final),
            ),
            self._cause,
        )
        if done.best is not None:
            self._evaluations.written(done.best, str(final))

    def _remove_old(self, newest: Path) -> int:
        """Returns the number of removed checkpoints. One that cannot be removed is only told: the new one is whole."""
        place, copying = self._run.directory, self._mirror.copying if self._mirror is not None else None
        try:
            return len(retain(place.checkpoints, self._run.job.checkpoint.keep, newest, place.identity.run_id, copying))
        except CheckpointError as error:
            self._run.note(DirectoryNotRemoved(str(place.checkpoints), error.message))
            return 0

    def _failed(self, error: CheckpointError, *, is_final: bool, staging: Path | None = None) -> None:
        """Plans a retry of a failed checkpoint, or raises `error` to end the run: when it is the final one, or when
        MAX_FAILED_IN_A_ROW fail and no earlier one is intact. With a full disk the run waits for space instead, except
        in the final checkpoint of a run that was asked to stop."""
        self._failed_in_a_row += 1
        if not is_final:
            self._evaluations.give_up_best()
        good = self._good()
        waits = isinstance(error, CheckpointSpaceError) and not (is_final and self._is_stopping())
        if not waits and (is_final or (good is None and self._failed_in_a_row >= MAX_FAILED_IN_A_ROW)):
            raise error
        wait_s = backoff_s(self._failed_in_a_row, RETRY_S, MAX_RETRY_S)
        self._run.note(
            CheckpointFailed(str(error), self._failed_in_a_row, good.name if good is not None else "", wait_s),
            self._cause,
        )
        self._later(staging, wait_s)

    def _good(self) -> Path | None:
        """The newest checkpoint, if its manifest can still be read."""
        if self.newest is not None:
            with contextlib.suppress(CheckpointError):
                load_manifest(self.newest)
                return self.newest
        return None

    def _abandon(self, reason: str) -> None:
        assert self._state.open is not None
        done, self._state.open = self._state.open, None
        self._write_back.cancel()
        self._forget_elsewhere(done)
        if done.failure is not None:
            self._failed(done.failure, is_final=done.is_final, staging=done.staging)
            return
        self._run.note(CheckpointAbandoned(reason), self._cause)
        self._later(done.staging, RETRY_S)

    def _forget_elsewhere(self, given_up: _OpenCut) -> None:
        """Removes the files of an abandoned cut on other machines."""
        if self._run.machines is None:
            return
        for record in self._run.fleet.live("server"):
            if record.spec.host in self._run.elsewhere:
                name = f"{_elsewhere(given_up)}/server-{record.process.index}.bin"
                self._run.machines.launchers[record.spec.host].files.remove(name)

    def _later(self, staging: Path | None, wait_s: float) -> None:
        """Removes the staging directory and sets the time of the retry. The failure of a PS that still writes there is
        ignored, because the cut is not open any more."""
        if staging is not None:
            self._remove(staging)
        self.retry_not_before_s = self._run.now_s() + wait_s

    def _remove(self, staging: Path) -> None:
        try:
            remove_tree(staging)
        except OSError as error:  # a PS wrote a file meanwhile; the next run in this directory removes the rest
            self._run.note(DirectoryNotRemoved(str(staging), error.strerror or str(error)))

    def _tell_mirrored(self, mirror: Mirror | HostMirror) -> None:
        for copy in mirror.results():
            if copy.error is None:
                self._run.note(CheckpointMirrored(copy.checkpoint, str(mirror.directory), copy.bytes))
            else:
                self._run.note(MirrorFailed(copy.checkpoint, str(copy.error)))


def _elsewhere(opened: _OpenCut) -> str:
    """Path of a cut's directory on another machine, relative to the run directory there."""
    return f"checkpoints/{opened.staging.name}"
