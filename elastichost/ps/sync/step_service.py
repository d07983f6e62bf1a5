"""Sync mode at the dense owner: takes micro-batches, and commits a step when it has all of them.

Rules
1. The open step has the number of the dense vector's version. One publication of the dense vector commits it, together
   with the crew's applied record and its samples; the next step is open from then on.
2. A micro-batch counts only under the present shard map epoch. A new epoch drops everything that is not committed.
3. A micro-batch of an earlier step is acknowledged as a duplicate: its step is committed. One of a later step, or under
   another shard map, is refused; its worker asks again which step is open.
4. After a commit this PS applies its own staged rows of the step before it answers the waiting workers.

Theory of operation. For step s, in this order:

    micro-batches complete (held) -> record of applied.bin -> dense half written -> published (committed: version s + 1)
    -> this PS applies its staged rows of s -> waiting workers are answered -> their pulls and pushes for s + 1 make the
    other PS apply their rows of s

Without space on the disk for the record the step stays held, and `commit_held` is called again. A kill before the
publication loses the held step: the crew computes it again under the successor, and the record is overwritten. A kill
after it leaves staged rows of a committed step: the successor applies them when it becomes the dense owner
(`ServerLoop._apply_own_commits`), the other PS with the next message for step s + 1, a snapshot or a new shard map.
"""

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
    """Answers the messages of steps. The version of the dense vector is the number of the open step."""

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
        self._held: tuple[int, StepGradient] | None = None  # the open step, complete but not committed (no disk space)

    def push(
        self, peer: bytes, sender: ProcessId, message: DensePushMsg, frames: Sequence[memoryview]
    ) -> list[Outgoing]:
        """Takes a micro-batch of the open step, and commits the step when it was the last one. A micro-batch of an
        earlier step is acknowledged as a duplicate. Raises ProtocolError."""
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
            return [acknowledged]  # a repeated push: the held step has all its micro-batches
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
        """Commits the held step, if there is one, and answers the workers that wait for the next one. Raises
        DiskFullError when there is no space yet; the step stays held."""
        if self._held is None or not self._is_current(self._session.shard_map_epoch) or self._held is None:
            return []
        step, gradient = self._held
        self._commit(step, gradient)
        self._held = None
        crash_point("ps.commit.before_apply")
        self._applier.settle_steps(step)
        return self._reached()

    def leave_out(self, message: PushMsg) -> bool:
        """Leaves out a micro-batch of the open step, on which workers died. False: the step is committed or about to
        be, or the message is under another shard map.

        After False the worker must not notify the other PS: they would drop rows of a step that is committed with them.
        """
        if message.step != self._dense.version() or not self._is_current(message.shard_map_epoch):
            return False
        if self._held is not None:
            return False  # the step is complete and about to be committed
        self._board.leave_out(message.step, message.micro)
        return True

    def ask(self, peer: bytes, message: StepAskMsg) -> list[Outgoing]:
        """Takes a request to begin a step. It is answered when the step is open or over."""
        if not self._is_current(message.shard_map_epoch):
            return [self._retry(peer, message.request)]
        self._board.wait(StepWaiter(peer, message.request, message.step))
        return self._reached()

    def _is_current(self, shard_map_epoch: int) -> bool:
        """Whether this is the present shard map epoch. The first call under a new epoch drops all that was collected
        under the older one."""
        if self._epoch != self._session.shard_map_epoch:
            self._epoch = self._session.shard_map_epoch
            self._board.forget()
            self._held = None
        return shard_map_epoch == self._epoch

    def _retry(self, peer: bytes, request: int) -> Outgoing:
        epoch = self._session.shard_map_epoch
        return Outgoing(
            peer, RetryMsg(request=request, reason=f"this PS has shard map epoch {epoch}", shard_map_epoch=epoch)
        )

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
