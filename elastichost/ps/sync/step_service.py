"""Sync mode at the dense owner: micro-batches come in, a step is committed when it has all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.errors import DiskFullError
from elastichost.micro_batches import CREW, CREW_INCARNATION
from elastichost.plan import ProcessId
from elastichost.ps.applied_log import AppliedLog
from elastichost.ps.applier import RowApplier
from elastichost.ps.frames import Outgoing, float32_frame
from elastichost.ps.rules import require_finite
from elastichost.ps.session import Session
from elastichost.ps.sync.step_board import StepBoard, StepGradient, StepWaiter
from elastichost.specs import DenseSpec
from elastichost.wire.applied import left_out_words
from elastichost.wire.crash import crash_point
from elastichost.wire.data import DensePushedMsg, DensePushMsg, PushMsg, RetryMsg, StepAskMsg, StepReachedMsg

__all__ = ["StepService"]


class StepService:
    """The version of the dense vector is the step under way."""

    def __init__(
        self,
        session: Session,
        dense: DenseStore,
        optimizer: DenseOptimizerSpec,
        applier: RowApplier,
        log: AppliedLog,
        spec: DenseSpec,
    ) -> None:
        self._session, self._dense, self._optimizer = session, dense, optimizer
        self._applier, self._log, self._elements = applier, log, spec.elements
        self._parameters = spec.parameters
        self._board = StepBoard(spec.parameters)
        self._epoch = 0
        self._held: tuple[int, StepGradient] | None = None  # a step that is complete, for which the disk has no space

    def push(
        self, peer: bytes, sender: ProcessId, message: DensePushMsg, frames: Sequence[memoryview]
    ) -> list[Outgoing]:
        """A micro-batch of the step under way; one of a step before is acknowledged as well: it was committed. Raises
        ProtocolError."""
        step = self._dense.version()
        if message.step > step or (message.step == step and not self._is_current(message.shard_map_epoch)):
            return [self._retry(peer, message.request)]
        acknowledged = Outgoing(
            peer,
            DensePushedMsg(
                request=message.request,
                sequence=message.sequence,
                version=step,
                samples_applied=self._dense.samples_applied(),
                duplicate=message.step < step,
            ),
        )
        if message.step < step:
            return [acknowledged]
        if self._held is not None:
            return [acknowledged]  # it came before: the step has all its micro-batches
        vector = float32_frame(frames, 0, self._elements)
        require_finite(vector[: self._parameters], str(sender))
        gradient = self._board.stage(message, vector)
        if gradient is None:
            return [acknowledged]
        self._held = step, gradient
        with contextlib.suppress(DiskFullError):
            return [acknowledged, *self.commit_held()]
        return [acknowledged]

    def commit_held(self) -> list[Outgoing]:
        """Commits the step that has all its micro-batches, if there is one; those who wait for the next one are told.
        Raises DiskFullError: it is held until there is space."""
        if self._held is None or not self._is_current(self._session.shard_map_epoch) or self._held is None:
            return []
        step, gradient = self._held
        self._commit(step, gradient)
        self._held = None
        crash_point("ps.commit.before_apply")
        self._applier.settle_steps(step)
        return self._reached()

    def leave_out(self, message: PushMsg) -> bool:
        """A micro-batch that workers died on, of the step under way. False: it is too late, or under an older map. Then
        no other PS may hear of it: it would drop rows of a step that is committed with them."""
        if message.step != self._dense.version() or not self._is_current(message.shard_map_epoch):
            return False
        if self._held is not None:
            return False  # it is about to be committed
        self._board.leave_out(message.step, message.micro)
        return True

    def ask(self, peer: bytes, message: StepAskMsg) -> list[Outgoing]:
        """Answered when the step may begin."""
        if not self._is_current(message.shard_map_epoch):
            return [self._retry(peer, message.request)]
        self._board.wait(StepWaiter(peer, message.request, message.step))
        return self._reached()

    def _is_current(self, shard_map_epoch: int) -> bool:
        """What was staged under another shard map counts no more, from the first moment that this one is known."""
        if self._epoch != self._session.shard_map_epoch:
            self._epoch = self._session.shard_map_epoch
            self._board.forget()
            self._held = None
        return shard_map_epoch == self._epoch

    def _retry(self, peer: bytes, request: int) -> Outgoing:
        epoch = self._session.shard_map_epoch
        return Outgoing(peer, RetryMsg(request=request, reason=f"this PS has shard map {epoch}", shard_map_epoch=epoch))

    def _reached(self) -> list[Outgoing]:
        step = self._dense.version()
        due = self._board.due(step)
        if not due:
            return []
        vector = np.empty(self._elements, dtype=np.float32)
        self._dense.read_into(vector)
        samples = self._dense.samples_applied()
        return [
            Outgoing(w.peer, StepReachedMsg(request=w.request, step=step, samples_applied=samples), (vector,))
            for w in due
        ]

    def _commit(self, step: int, gradient: StepGradient) -> None:
        g = gradient
        self._log.write(
            step,
            (
                *(CREW, CREW_INCARNATION, step, g.lease_id, g.epoch, g.unit),
                *(g.start, g.stop, g.samples, g.skipped, g.loss_sum, left_out_words(g.left_out)),
            ),
        )
        crash_point("ps.step.before_commit")
        self._dense.apply_gradient(
            g.vector,
            self._optimizer,
            g.learning_rate_scale,
            worker=CREW,
            incarnation=CREW_INCARNATION,
            sequence=step,
            lease_id=g.lease_id,
            stop=g.stop,
            samples=g.samples,
            skipped=g.skipped,
        )
