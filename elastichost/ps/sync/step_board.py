"""Sync mode, at the dense owner: the micro-batches of the step that is under way, and who waits for it. Sans-IO.

Nothing here outlives its PS: whoever takes over is another incarnation, the shard map gets another epoch, and then the
crew computes the step again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from elastichost.errors import ProtocolError
from elastichost.wire.data import DensePushMsg

__all__ = ["StepBoard", "StepGradient", "StepWaiter"]

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepGradient:
    """A step's gradient: float32 [elements] (gradients summed, buffers averaged), and what it accounts for."""

    vector: Float32
    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int
    samples: int
    skipped: int
    loss_sum: float
    learning_rate_scale: float
    left_out: tuple[int, ...]  # numbers of micro-batches


@dataclass(frozen=True, slots=True)
class StepWaiter:
    """Answer this request when the step may begin."""

    peer: bytes
    request: int
    step: int


@dataclass(slots=True)
class StepBoard:
    """`parameters`: how many of a vector's elements are gradients; the rest are buffers."""

    parameters: int
    _step: int = 0
    _micros: dict[int, tuple[DensePushMsg, Float32]] = field(default_factory=dict)
    _left_out: set[int] = field(default_factory=set)
    _waiters: list[StepWaiter] = field(default_factory=list)

    def forget(self) -> None:
        """The shard map has changed: nothing of the present step counts, and whoever waits will ask again."""
        self._clear()
        self._waiters.clear()

    def _clear(self) -> None:
        self._micros.clear()
        self._left_out.clear()

    def _begin(self, step: int) -> None:
        if step != self._step:
            self._step = step
            self._clear()

    def leave_out(self, step: int, micro: int) -> None:
        """Nothing is trained of this micro-batch: what has come of it is dropped, and what may still come is ignored.
        The step waits for the push that says so, which comes when no PS has rows of it any more."""
        self._begin(step)
        if micro not in self._left_out:  # else the push that says so may have come
            self._left_out.add(micro)
            self._micros.pop(micro, None)

    def stage(self, message: DensePushMsg, vector: Float32) -> StepGradient | None:
        """Takes a micro-batch of the present step; float32 [elements] is kept. The step's gradient once all are there.
        One that came before is ignored: it was the same. Raises ProtocolError for micro-batches that cannot be."""
        self._begin(message.step)
        if not 0 <= message.micro < message.micros or len(self._micros) > message.micros:
            raise ProtocolError(f"micro-batch {message.micro} of {message.micros} of step {message.step}")
        if message.micro in self._left_out and not message.is_left_out:
            return None
        if message.micro not in self._micros:
            self._micros[message.micro] = message, vector
        if len(self._micros) < message.micros:
            return None
        gradient = self._sum()
        self._clear()
        return gradient

    def _sum(self) -> StepGradient:
        """In the order of the micro-batches, so that the bits do not depend on who was first. Buffers (running means)
        are averaged by samples."""
        pushes = [self._micros[micro] for micro in sorted(self._micros)]
        first, last = pushes[0][0], pushes[-1][0]
        vector = pushes[0][1].copy()
        for _, other in pushes[1:]:
            vector[: self.parameters] += other[: self.parameters]
        samples = sum(push.samples for push, _ in pushes)
        if len(pushes) > 1 and samples and len(vector) > self.parameters:
            shares = [(push.samples / samples, other[self.parameters :]) for push, other in pushes]
            vector[self.parameters :] = sum(share * buffers.astype(np.float64) for share, buffers in shares)
        loss_sum = 0.0
        for push, _ in pushes:
            loss_sum += push.loss_sum
        return StepGradient(
            vector=vector,
            lease_id=first.lease_id,
            epoch=first.epoch,
            unit=first.unit,
            start=first.start,
            stop=last.stop,
            samples=samples,
            skipped=sum(push.skipped for push, _ in pushes),
            loss_sum=loss_sum,
            learning_rate_scale=first.learning_rate_scale,
            left_out=tuple(push.micro for push, _ in pushes if push.is_left_out),
        )

    def wait(self, waiter: StepWaiter) -> None:
        """One request of a peer waits: a newer one takes its place."""
        self._waiters = [known for known in self._waiters if known.peer != waiter.peer]
        self._waiters.append(waiter)

    def due(self, step: int) -> tuple[StepWaiter, ...]:
        """Who may go on, now that `step` is the first that is not committed."""
        due = tuple(waiter for waiter in self._waiters if waiter.step <= step)
        self._waiters = [waiter for waiter in self._waiters if waiter.step > step]
        return due
