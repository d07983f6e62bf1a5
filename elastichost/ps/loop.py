"""The event loop of a PS: two sockets, one store. Its rules and theory of operation: the docstring of the package."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from elastichost.arena.arena import Arena
from elastichost.arena.dense.optimizer import dense_optimizer
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.config.job import JobSpec
from elastichost.errors import DiskFullError, ProtocolError
from elastichost.host.affinity import move_to_cores
from elastichost.micro_batches import CREW
from elastichost.ps.applied_log import AppliedLog
from elastichost.ps.applier import RowApplier
from elastichost.ps.audit import Audit
from elastichost.ps.frames import Outgoing
from elastichost.ps.meter import RequestMeter
from elastichost.ps.rows.evictor import Evictor
from elastichost.ps.rows.restorer import fill_buckets, remake_buckets
from elastichost.ps.rows.store import RowStore
from elastichost.ps.rules import Rules
from elastichost.ps.service import DataService, outgoing_clock
from elastichost.ps.session import Session
from elastichost.ps.snapshot import Block, SnapshotWriter, written_message
from elastichost.ps.transfer.both_ends import BucketTransfers
from elastichost.sharding import bucket_count
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope, frame_bytes
from elastichost.wire.control import (
    AdmitMsg,
    AdmittedMsg,
    ControlMessage,
    CopyBucketsMsg,
    DrainMsg,
    FencedMsg,
    FenceMsg,
    ForgetBucketsMsg,
    HeartbeatMsg,
    HelloMsg,
    KeepBucketsMsg,
    MeasureBucketsMsg,
    MembershipMsg,
    ReadyMsg,
    RepinMsg,
    RepinnedMsg,
    RestoreMsg,
    SettledMsg,
    SettleMsg,
    ShardMapUpdateMsg,
    SnapshotCutMsg,
    SnapshotMsg,
    StopMsg,
    UnsettledMsg,
)
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import HEARTBEAT_S
from elastichost.wire.security.keys import AllowList
from elastichost.wire.security.refusals import RefusalLog
from elastichost.wire.sockets import ControlClient, DataServer, Waiter

__all__ = ["ServerLoop"]

MOVING_S = 0.02  # longest wait of a turn while buckets are fetched, so that refused and lost requests are repeated soon
MESSAGES_PER_TURN = 64  # data messages that are handled before the control socket is read again


class ServerLoop:
    """One PS incarnation, from Hello to Stop."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        self._arguments, self._process = arguments, arguments.process
        self._run_dir = Path(arguments.run_dir)
        arena_directory = Path(arguments.arena_directory)
        self._arena = Arena.attach(arena_directory)
        allowance = self._arena.allowance = self._arena.board.allowance(arguments.index)
        self._dense = DenseStore(self._arena)
        self._is_sync = job.train.mode == "sync"
        self._store = RowStore(self._arena, job.job.seed)
        self._audit = Audit(self._store.snapshot_bucket, arguments.supervisor_pid)
        self._watermarks = Watermarks(arena_directory)
        self._session = Session()
        self._log = AppliedLog(self._run_dir)
        tables = self._arena.model.tables
        self._applier = RowApplier(arena_directory, arguments.index, len(tables), self._store.lines, allowance)
        self._service = DataService(
            self._arena.model,
            self._session,
            self._store,
            self._dense,
            dense_optimizer(job),
            self._applier,
            self._log,
            Rules.of(job, arguments.access, self._arena.layout.max_workers, has_dense=arguments.host == 0),
        )
        self._evictor = Evictor(
            tables,
            self._store,
            self._dense,
            self._service,
            self._session,
            None if arguments.host == 0 else self._watermarks,
            is_sync=job.train.mode == "sync",
        )
        self._snapshots = SnapshotWriter()
        address = f"ipc://{arguments.socket_directory}/{self._process}"
        self._allowed = AllowList()  # empty: no process of another machine is admitted before the first AdmitMsg
        self._data = DataServer(address, arguments.job_id, self._process, arguments.gate_for(self._allowed))
        whom = (arguments.control_address, arguments.job_id, self._process)
        self._control = ControlClient(*whom, arguments.to_supervisor)
        self._moving = BucketTransfers(arguments, self._arena, self._store, self._applier, self._control.send)
        self._owned: frozenset[tuple[int, int]] = frozenset()
        self._restore_from: Path | None = None
        self._update: tuple[ShardMapUpdateMsg, tuple[memoryview, ...]] | None = None  # the map that waits for adoption
        self._progress, self._meter, self._refused = 0, RequestMeter(), RefusalLog()
        self._beat_at_s = 0.0
        self._fences_left: set[tuple[int, int]] = set()  # open fences: no disk space for the commits they need
        self._reserves = job.checkpoint.every_s > 0  # with only the final checkpoint, no training waits for a copy
        self._running = True

    def run(self) -> None:
        """Runs until Stop. Raises typed errors, which `main` reports."""
        a = self._arguments
        outer = self._data.outer_address
        self._control.send(HelloMsg(a.role, a.index, a.incarnation, os.getpid(), self._data.address, outer))
        waiter, clients = self._waiter(), self._moving.clients
        while self._running:
            waiter.wait(MOVING_S if clients else HEARTBEAT_S / 2)
            began_s = time.perf_counter()
            self._handle_control()
            handled = self._handle_data()
            if self._moving.turn(time.monotonic()) and self._update is not None:
                self._adopt(*self._update)
            if self._moving.clients != clients:
                waiter, clients = self._waiter(), self._moving.clients
            self._finish_snapshot()
            if self._log.problem or self._fences_left:
                self._try_again()
            if handled:
                self._meter.busy_s += time.perf_counter() - began_s
            self._beat()

    def _waiter(self) -> Waiter:
        return Waiter(self._control, self._data, self._snapshots.descriptor, *self._moving.clients)

    def close(self) -> None:
        """Closes sockets and mapped files. Queued control messages have 1 s to leave."""
        self._moving.close()
        self._data.close()
        self._control.flush(1.0)
        self._snapshots.close()
        self._log.close()
        self._applier.close()

    @property
    def control(self) -> ControlClient:  # `main` reports a failure through it
        return self._control

    # --- data -----------------------------------------------------------------------------------------------

    def _handle_data(self) -> int:
        for number in range(MESSAGES_PER_TURN):
            try:
                received = self._data.receive()
            except ProtocolError as error:
                self._refused(str(error))
                continue
            if received is None:
                return number
            peer, envelope = received
            crash_point("ps.data.before_apply")
            try:
                is_of_ps = envelope.sender is not None and envelope.sender.role == "server"
                outgoing = (self._moving.answer if is_of_ps else self._service.handle)(peer, envelope)
            except DiskFullError:
                continue  # no answer: the worker sends it again, and the heartbeat reports the full disk
            except ProtocolError as error:
                self._refused(f"{type(envelope.message).__name__} of {envelope.sender}: {error}")
                self._send([self._service.refused(peer, envelope.message, error)])
                continue
            crash_point("ps.data.before_reply")
            self._meter.requests += 1
            self._meter.received += sum(frame.nbytes for frame in envelope.frames)
            self._send(outgoing)
        return MESSAGES_PER_TURN

    def _send(self, outgoing: list[Outgoing]) -> None:
        for item in outgoing:
            try:
                self._data.send(item.peer, item.message, item.frames)
            except ProtocolError:
                continue  # the worker is gone; the supervisor fences it
            self._meter.sent += sum(frame_bytes(frame) for frame in item.frames)

    # --- control --------------------------------------------------------------------------------------------

    def _handle_control(self) -> None:
        while (envelope := self._control.receive()) is not None:
            self._handle(envelope)

    def _handle(self, envelope: Envelope[ControlMessage]) -> None:
        match envelope.message:
            case ShardMapUpdateMsg() as update:
                self._adopt(update, envelope.frames)
            case RestoreMsg(checkpoint=checkpoint):
                self._restore_from = Path(checkpoint)
            case AdmitMsg(number=number, keys=keys):
                self._allowed.replace(dict(keys))
                self._control.send(AdmittedMsg(number))
            case MembershipMsg(epoch=epoch, workers=workers):
                self._send(outgoing_clock(self._session.set_members(epoch, workers)))
                self._ask_about_strangers()
            case FenceMsg(worker=worker, incarnation=incarnation):
                self._fence(worker, incarnation)
            case SettleMsg(worker=worker, incarnation=incarnation, sequence=sequence):
                self._settle(worker, incarnation, sequence)
            case SnapshotMsg(cut=cut, path=path, committed_step=step):
                self._applier.settle_steps(step)
                self._snapshot(cut, Path(path))
            case MeasureBucketsMsg() | CopyBucketsMsg() | ForgetBucketsMsg() | KeepBucketsMsg() as order:
                self._moving.handle(order)
            case RepinMsg(cores=cores):
                move_to_cores(cores)
                self._control.send(RepinnedMsg(cores))
            case StopMsg() | DrainMsg():
                self._running = False
            case other:
                raise ProtocolError(f"the supervisor sent a {type(other).__name__} to a PS")

    def _adopt(self, update: ShardMapUpdateMsg, frames: tuple[memoryview, ...]) -> None:
        """Adopts a shard map with a greater epoch, or keeps it in `_update` if it must wait."""
        if update.epoch <= self._session.shard_map_epoch:
            return
        self._update = None
        if update.settles:
            self._applier.settle_left(update.committed, is_sync=self._is_sync)
        owned = {
            (table.index, bucket)
            for table, frame in zip(self._arena.model.tables, frames, strict=True)
            for bucket in range(bucket_count(table))
            if np.frombuffer(frame, dtype=np.uint16)[bucket] == self._arguments.index
        }
        gained, lost = sorted(owned - self._owned), sorted(self._owned - owned)
        if lost:
            crash_point("ps.handover.before_release")
        if not self._let_go(lost, update):
            self._update = (update, frames)  # adopted again when the waiting pushes are settled
            return
        if lost:
            crash_point("ps.handover.after_release")
        self._owned &= owned
        moved = [bucket for bucket in gained if bucket in update.moved]
        if not self._moving.take_over(moved):
            self._update = (update, frames)  # adopted again when all rows of these buckets have come
            return
        self._fill([bucket for bucket in gained if bucket not in update.moved], update)
        self._moving.forget()
        self._audit.note("adopted", update.epoch, gained)
        if gained and self._session.shard_map_epoch:
            crash_point("ps.handover.after_adopt")
        self._owned = frozenset(owned)
        was_owner = self._service.is_dense_owner
        is_owner = self._service.is_dense_owner = update.dense_owner == self._arguments.index
        if is_owner and not was_owner:
            self._log.take_over(self._dense.version())
            self._apply_own_commits()
        self._session.shard_map_epoch = update.epoch
        committed = self._dense.committed() if is_owner or was_owner else ()
        self._control.send(ReadyMsg(shard_map_epoch=update.epoch, committed=committed))

    def _fill(self, buckets: list[tuple[int, int]], update: ShardMapUpdateMsg) -> None:
        """Adopts these buckets: those that were lost are made anew, the others are filled from arena or checkpoint."""
        lost, checkpoint = set(update.remade), Path(update.checkpoint) if update.checkpoint else None
        remake_buckets(self._store, [b for b in buckets if b in lost], checkpoint, self._show_progress)
        checkpoint, self._restore_from = self._restore_from, None
        fill_buckets(self._store, [b for b in buckets if b not in lost], checkpoint, self._show_progress)

    # --- staged pushes --------------------------------------------------------------------------------------

    def _let_go(self, lost: list[tuple[int, int]], update: ShardMapUpdateMsg) -> bool:
        """Settles staged pushes, then releases these buckets. False: a push waits for the supervisor's SettleMsg."""
        newest = {entry.worker: entry for entry in update.committed}
        if self._is_sync:
            crew = newest.get(CREW)
            self._applier.settle_steps(0 if crew is None else crew.sequence, is_over=bool(lost))
        elif lost:
            for worker, incarnation, _ in self._applier.waiting():
                known = newest.get(worker)
                if known is None or known.incarnation <= incarnation:
                    committed = known.sequence if known is not None and known.incarnation == incarnation else 0
                    self._applier.settle(worker, incarnation, committed, is_over=True)
            if self._applier.waiting():
                self._ask_about(self._applier.waiting())
                return False
        self._audit.note("released", update.epoch, lost)
        self._store.release(lost)
        return True

    def _apply_own_commits(self) -> None:
        """Applies waiting pushes that the former dense owner had committed, and was killed before it applied them."""
        if self._is_sync:
            self._applier.settle_steps(self._dense.version() - 1)
            return
        for worker, incarnation, _ in self._applier.waiting():
            self._applier.settle(worker, incarnation, self._dense.applied(worker, incarnation).sequence)

    def _ask_about_strangers(self) -> None:
        """Asks the supervisor about waiting pushes of workers that are no longer members."""
        if self._is_sync:
            return  # a micro-batch belongs to no worker: its step is committed or computed again
        members = self._session.members
        self._ask_about(entry for entry in self._applier.waiting() if members.get(entry[0]) != entry[1])

    def _ask_about(self, waiting: Iterable[tuple[int, int, int]]) -> None:
        for worker, incarnation, _ in waiting:
            self._control.send(UnsettledMsg(worker, incarnation))

    def _settle(self, worker: int, incarnation: int, sequence: int) -> None:
        self._applier.settle(worker, incarnation, sequence, is_over=True)
        self._control.send(SettledMsg(worker, incarnation))
        if self._update is not None:
            self._adopt(*self._update)

    def _fence(self, worker: int, incarnation: int) -> None:
        self._send(outgoing_clock(self._session.fence(worker, incarnation)))
        if not self._service.is_dense_owner:
            return
        begun = self._watermarks.begun(worker, incarnation)
        if self._arguments.access == "direct" and begun > self._dense.applied(worker, incarnation).sequence:
            try:
                self._service.commit_posted(worker, incarnation)
            except DiskFullError:  # the fence is answered only when all that was released is committed
                self._fences_left.add((worker, incarnation))
                return
        self._control.send(FencedMsg(worker, incarnation, self._dense.applied(worker, incarnation)))

    def _try_again(self) -> None:
        """Repeats commits that failed because the disk was full. For those of dead workers no request comes again."""
        if self._service.is_dense_owner:
            self._log.look_for_space(self._dense.version())
        fences, self._fences_left = self._fences_left, set()
        for worker, incarnation in sorted(fences):
            self._fence(worker, incarnation)
        with contextlib.suppress(DiskFullError):
            self._send(self._service.commit_held())

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _snapshot(self, cut: int, path: Path) -> None:
        space = self._snapshots.space()
        blocks: list[Block] = []
        for table, bucket in sorted(self._owned):
            found = self._store.snapshot_bucket(table, bucket, space.copy)
            blocks += [Block(kind, owner, bucket, array) for kind, owner, array in found]
            self._show_progress()
        rows = sum(len(block.array) for block in blocks if block.kind == "rows")
        if self._service.is_dense_owner:
            copy = self._dense.state_copy()
            blocks += [Block("dense", 0, 0, copy.vector), Block("dense_state", 0, 0, copy.state)]
        crash_point("ps.snapshot.after_copy")
        self._control.send(SnapshotCutMsg(cut=cut, rows=rows, bytes=sum(block.array.nbytes for block in blocks)))
        if self._arguments.supervisor_key:  # on another machine than the supervisor, which fetches the file later
            with contextlib.suppress(OSError):  # the writing thread reports the error when it opens the file
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._snapshots.start(cut, path / f"server-{self._arguments.index}.bin", blocks)

    def _finish_snapshot(self) -> None:
        if (result := self._snapshots.result()) is not None:
            self._control.send(*written_message(result, self._dense.version()))

    # --- heartbeats -----------------------------------------------------------------------------------------

    def _show_progress(self) -> bool:
        """Counts progress and sends a heartbeat if one is due, also between the buckets of a long operation."""
        self._progress += 1
        now_s = time.monotonic()
        if now_s < self._beat_at_s:
            return False
        self._beat_at_s = now_s + HEARTBEAT_S
        meter, self._meter = self._meter, RequestMeter()
        sample = meter.sample(self._service.rows_touched)
        self._service.rows_touched = 0
        no_space = self._log.problem[:200] if self._service.is_dense_owner else ""
        self._control.send(HeartbeatMsg(progress=self._progress, sample=sample, state="serving", no_space=no_space))
        return True

    def _beat(self) -> None:
        self._evictor.turn(self._owned, self._show_progress, time.monotonic())
        if not self._show_progress():
            return
        self._arena.allowance.note_copies(self._snapshots.kept_bytes)
        if self._reserves and self._snapshots.reserve_is_due(time.monotonic()):
            self._snapshots.reserve(self._store.copy_bytes())
