"""Answers the data messages of workers: pulls, pushes, commits, the clock. One request in, replies out.

Rules
1. Every request is checked in this order: sender, `Rules` (possible in this job), fence and shard map epoch
   (`Session`), dense ownership. Nothing changes before all checks have passed.
2. Every request may be repeated. A batch is committed only if its sequence number is the applied record's plus one; an
   equal or smaller one is a duplicate, which is acknowledged again; a larger one is refused (a gap).
3. A batch whose rows were staged under an older shard map epoch is not committed.
4. Gradients that are not finite are refused before they are staged or committed.
5. A refusal that may be repeated is RetryMsg; a malformed request gets RetryMsg with `final`, so that its sender ends
   instead of waiting or sending it again.

Order of a commit (`_dense_push`): record of applied.bin, then one publication of the dense vector with the applied
record (`_commit`), then the worker's staged rows on this PS, then the answer. A kill after the record: it lies beyond
the version and counts for nothing. After the publication: the successor answers the repeated push as a duplicate and
applies the staged rows first. `ps.applier` describes kills while rows are applied.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.errors import IdOutOfRangeError, MemoryBudgetError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.ps.applied_log import AppliedLog
from elastichost.ps.applier import RowApplier
from elastichost.ps.frames import Outgoing, float32_frame, int64_frame
from elastichost.ps.rows.store import RowStore
from elastichost.ps.rules import Rules, require_finite
from elastichost.ps.session import Reply, Session
from elastichost.ps.sync.step_service import StepService
from elastichost.specs import ModelSpec
from elastichost.wire.applied import NONE_LEFT_OUT
from elastichost.wire.codec import Envelope, Frame
from elastichost.wire.crash import crash_point
from elastichost.wire.data import (
    ClockAdvancedMsg,
    ClockReachedMsg,
    DataMessage,
    DenseFetchMsg,
    DensePushedMsg,
    DensePushMsg,
    PulledMsg,
    PullMsg,
    PushedMsg,
    PushMsg,
    RetryMsg,
    RowsAppliedMsg,
    RowsCommittedMsg,
    StepAskMsg,
)

__all__ = ["DataService", "outgoing_clock"]


def outgoing_clock(replies: Sequence[Reply]) -> list[Outgoing]:
    """The messages for the session's effects."""
    return [Outgoing(r.peer, ClockReachedMsg(request=r.request, slowest=r.slowest, base=r.base)) for r in replies]


class DataService:
    """Applies data messages to the arena. is_dense_owner: set by the loop with each shard map."""

    def __init__(
        self,
        model: ModelSpec,
        session: Session,
        store: RowStore,
        dense: DenseStore,
        dense_optimizer: DenseOptimizerSpec,
        applier: RowApplier,
        log: AppliedLog,
        rules: Rules,
    ) -> None:
        self._model, self._session, self._rules = model, session, rules
        self._store, self._dense, self._optimizer = store, dense, dense_optimizer
        self._applier, self._log = applier, log
        self._steps = StepService(session, dense, dense_optimizer, applier, log, model.dense)
        self.is_dense_owner = False
        self.rows_touched = 0
        self._clocks: dict[int, int] = {}  # worker -> samples trained by all, as it last reported
        self._committed: dict[int, tuple[int, int]] = {}  # worker -> (incarnation, its committed batches, as reported)

    @property
    def clock(self) -> int:
        """Samples trained by all: the lower median of the workers' reports, so that no single worker can advance it."""
        members = self._session.members
        known = sorted(clock for worker, clock in self._clocks.items() if not members or worker in members)
        return known[(len(known) - 1) // 2] if known else 0

    def committed_of(self, worker: int, incarnation: int) -> int:
        """Committed batches of this incarnation, as it last reported; 0: no report."""
        known, sequence = self._committed.get(worker, (0, 0))
        return sequence if known == incarnation else 0

    def handle(self, peer: bytes, envelope: Envelope[DataMessage]) -> list[Outgoing]:
        """The replies that are due now. Raises ProtocolError for a malformed request, and DiskFullError when there is
        no space to commit; then nothing has changed and the worker gets no answer."""
        sender, message = envelope.sender, envelope.message
        if sender is None or sender.role != "worker":
            raise ProtocolError(f"{sender} sent a {type(message).__name__}: only workers may send it to a PS")
        self._rules.check(sender, message)
        epoch = message.shard_map_epoch if isinstance(message, (PullMsg, PushMsg)) else None
        refusal = self._session.refuse(sender, epoch)
        if (
            refusal is None
            and isinstance(message, (DensePushMsg, DenseFetchMsg, ClockAdvancedMsg, StepAskMsg))
            and not self.is_dense_owner
        ):
            return [self._retry(peer, message.request, "this PS does not own the dense vector")]
        if refusal is not None:
            return [self._retry(peer, message.request, refusal.reason, final=refusal.final)]
        if isinstance(message, (PullMsg, PushMsg)) and self._rules.has_dense and message.step > self._dense.version():
            return [self._retry(peer, message.request, f"step {message.step} has not begun")]
        match message:
            case PullMsg() | PushMsg():
                return [self._rows(peer, sender, message, envelope.frames)]
            case RowsCommittedMsg():
                return [self._rows_committed(peer, sender, message)]
            case DensePushMsg(step=0):
                return [self._dense_push(peer, sender, message, envelope.frames)]
            case DensePushMsg():
                return self._steps.push(peer, sender, message, envelope.frames)
            case StepAskMsg():
                return self._steps.ask(peer, message)
            case DenseFetchMsg():
                return [self._dense_fetch(peer, message)]
            case ClockAdvancedMsg(batch=batch) if batch >= 0 and not self._session.counts(sender):
                return [self._retry(peer, message.request, f"{sender} is not a member yet: others would wait for it")]
            case ClockAdvancedMsg():
                asked = (message.request, message.batch, message.staleness, message.base)
                replies = self._session.advanced(sender, peer, *asked)
                return outgoing_clock(replies)
            case _:
                raise ProtocolError(f"{sender} sent a {type(message).__name__}, which only a PS sends")

    def _rows(
        self, peer: bytes, sender: ProcessId, message: PullMsg | PushMsg, frames: Sequence[memoryview]
    ) -> Outgoing:
        try:
            if isinstance(message, PullMsg):
                return self._pull(peer, sender, message, frames)
            return self._push(peer, sender, message, frames)
        except IdOutOfRangeError as error:  # a correct worker finds such an id itself, before it pulls
            raise ProtocolError(f"{sender}: {error.message}") from error
        except MemoryBudgetError as error:  # nothing has changed; memory may be granted soon, or the job is ended
            return self._retry(peer, message.request, str(error))

    def refused(self, peer: bytes, message: DataMessage, error: ProtocolError) -> Outgoing:
        """The final answer to a malformed request. Without it the sender would wait and send the request again."""
        return self._retry(peer, message.request, str(error), final=True)

    def _retry(self, peer: bytes, request: int, reason: str, *, final: bool = False) -> Outgoing:
        epoch = self._session.shard_map_epoch
        return Outgoing(peer, RetryMsg(request=request, reason=reason, shard_map_epoch=epoch, final=final))

    # --- rows -----------------------------------------------------------------------------------------------

    def _pull(self, peer: bytes, sender: ProcessId, message: PullMsg, frames: Sequence[memoryview]) -> Outgoing:
        if message.step:
            self._applier.settle_steps(message.step - 1)
            if message.create and self._applier.step_is_over(message.step):
                return self._retry(peer, message.request, f"step {message.step} is over")
        bounds = self._bounds(message.counts)
        keys = int64_frame(frames, int(bounds[-1]))
        rows = self._store.rows_of(keys, bounds, message.create, message.clock)
        answer = (rows, self._store.lines.pull(rows, bounds)) if message.weights else (rows,)
        self.rows_touched += len(keys)
        self._clocks[sender.index] = max(self._clocks.get(sender.index, 0), message.clock)
        return Outgoing(peer, PulledMsg(request=message.request), answer)

    def _push_micro(self, peer: bytes, sender: ProcessId, message: PushMsg, frames: Sequence[memoryview]) -> Outgoing:
        bounds = self._bounds(message.counts)
        rows, gradients = (
            int64_frame(frames, int(bounds[-1])),
            float32_frame(frames, 1, self._store.lines.floats(bounds)),
        )
        require_finite(gradients, str(sender))
        if not len(rows) and self.is_dense_owner and not self._steps.leave_out(message):
            return self._retry(peer, message.request, f"step {message.step} is over")
        epoch, scale = message.shard_map_epoch, message.learning_rate_scale
        self._applier.stage_micro(message.micro, message.step, epoch, scale, rows, bounds, gradients)
        self.rows_touched += len(rows)
        return Outgoing(peer, PushedMsg(request=message.request))

    def _push(self, peer: bytes, sender: ProcessId, message: PushMsg, frames: Sequence[memoryview]) -> Outgoing:
        if message.step:
            return self._push_micro(peer, sender, message, frames)
        worker, incarnation, epoch = sender.index, sender.incarnation, message.shard_map_epoch
        self._applier.settle(worker, incarnation, message.committed)
        self._committed[worker] = (incarnation, message.committed)
        if self._applier.knows(worker, incarnation, message.sequence, epoch):
            return Outgoing(peer, PushedMsg(request=message.request, duplicate=True))
        if self._applier.incarnation_waiting(worker) not in (0, incarnation):
            return self._retry(peer, message.request, f"a push of an incarnation before {sender} waits to be settled")
        bounds = self._bounds(message.counts)
        rows = int64_frame(frames, int(bounds[-1]))
        gradients = float32_frame(frames, 1, self._store.lines.floats(bounds))
        require_finite(gradients, str(sender))
        scale = message.learning_rate_scale
        self._applier.stage(worker, incarnation, message.sequence, epoch, scale, rows, bounds, gradients)
        self.rows_touched += len(rows)
        return Outgoing(peer, PushedMsg(request=message.request))

    def _rows_committed(self, peer: bytes, sender: ProcessId, message: RowsCommittedMsg) -> Outgoing:
        self._applier.settle(sender.index, sender.incarnation, message.sequence)
        self._committed[sender.index] = (sender.incarnation, message.sequence)
        return Outgoing(peer, RowsAppliedMsg(request=message.request, sequence=message.sequence))

    def _bounds(self, counts: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """int64 [tables + 1]: where each table's items begin in a frame, and the end. Raises ProtocolError."""
        if len(counts) != len(self._model.tables) or min(counts, default=0) < 0:
            raise ProtocolError(f"counts {counts} do not fit the model, which has {len(self._model.tables)} tables")
        return np.array(list(itertools.accumulate(counts, initial=0)), np.int64)

    # --- dense ----------------------------------------------------------------------------------------------

    def _dense_push(
        self, peer: bytes, sender: ProcessId, message: DensePushMsg, frames: Sequence[memoryview]
    ) -> Outgoing:
        before = self._dense.applied(sender.index, sender.incarnation)
        duplicate = message.sequence <= before.sequence
        if not duplicate:
            if 0 < message.shard_map_epoch < self._session.shard_map_epoch:
                return self._retry(peer, message.request, "its rows were staged under an older shard map")
            if message.shard_map_epoch > self._session.shard_map_epoch:
                return self._retry(peer, message.request, "its rows were staged under a newer shard map")
            if message.sequence != before.sequence + 1:  # the batch before was lost on its way: both are sent again
                return self._retry(
                    peer, message.request, f"batch {message.sequence} came after batch {before.sequence}"
                )
            self._commit(sender, message, frames)
            crash_point("ps.commit.before_apply")
        self._applier.settle(sender.index, sender.incarnation, message.sequence)
        answer: tuple[Frame, ...] = ()
        if message.want_parameters:
            vector = np.empty(self._model.dense.elements, dtype=np.float32)
            self._dense.read_into(vector)
            answer = (vector,)
        pushed = DensePushedMsg(
            request=message.request,
            sequence=message.sequence,
            version=self._dense.version(),
            samples_applied=self._dense.samples_applied(),
            duplicate=duplicate,
        )
        return Outgoing(peer, pushed, answer)

    def _commit(self, sender: ProcessId, message: DensePushMsg, frames: Sequence[memoryview]) -> None:
        vector = None if message.is_applied else self._pushed(sender, message, frames)
        m = message
        self._log.write(
            self._dense.version(),
            (
                *(sender.index, sender.incarnation, m.sequence, m.lease_id, m.epoch, m.unit),
                *(m.start, m.stop, m.samples, m.skipped, m.loss_sum, NONE_LEFT_OUT),
            ),
        )
        self._dense.apply_gradient(
            vector,
            self._optimizer,
            m.learning_rate_scale,
            worker=sender.index,
            incarnation=sender.incarnation,
            sequence=m.sequence,
            lease_id=m.lease_id,
            stop=m.stop,
            samples=m.samples,
            skipped=m.skipped,
        )

    def _pushed(
        self, sender: ProcessId, message: DensePushMsg, frames: Sequence[memoryview]
    ) -> npt.NDArray[np.float32]:
        """The vector of a push. Raises ProtocolError for one that is not finite or has another size."""
        if message.mailbox >= 0:
            return self._dense.mailbox(sender.index, message.mailbox).vector
        vector = float32_frame(frames, 0, self._model.dense.elements)
        require_finite(vector[: self._model.dense.parameters], str(sender))
        return vector

    def commit_posted(self, worker: int, incarnation: int) -> None:
        """Direct access: commits the batches that a dead, fenced incarnation had released into its mailbox, in order
        and without gaps. Their messages may be lost. Raises DiskFullError."""
        process = ProcessId("worker", worker, incarnation)
        for content in self._dense.posted(worker, incarnation):
            message = msgspec.msgpack.decode(content, type=DensePushMsg)
            if message.sequence == self._dense.applied(worker, incarnation).sequence + 1:
                self._commit(process, message, ())

    def commit_held(self) -> list[Outgoing]:
        """Sync mode: commits the step that waits for disk space. Raises DiskFullError if there is still
        none."""
        return self._steps.commit_held()

    def _dense_fetch(self, peer: bytes, message: DenseFetchMsg) -> Outgoing:
        vector = np.empty(self._model.dense.elements, dtype=np.float32)
        version = self._dense.read_into(vector)
        pushed = DensePushedMsg(
            request=message.request, sequence=0, version=version, samples_applied=self._dense.samples_applied()
        )
        return Outgoing(peer, pushed, (vector,))
