"""Sync mode, at the dense owner: the micro-batches of the open step, and the workers that wait for its commit. Sans-IO.

Rules
1. Only one step is open. The first message of another step drops what is kept of the step before.
2. A micro-batch counts once: a second push of it is ignored, because it has the same bits.
3. The step's gradient exists when all its micro-batches are there. They are added in the order of their numbers, not of
   their arrival; floating-point addition depends on the order, so this makes the bits the same in every run. Buffers
   (running means) are averaged, weighted by samples, in float64.
4. A micro-batch that is left out counts when its push with `is_left_out` has come. Until then the step stays open, so
   it cannot commit while a PS still holds rows of that micro-batch.
5. A worker has one waiting request; a newer one replaces it. It is due when its step is not beyond the open step.

Inputs: pushes (`stage`), left-out notices (`leave_out`), requests to begin a step (`wait`), new shard maps (`forget`),
the number of the open step (`due`). Outputs: the step's gradient, and the requests to answer. The caller commits.

This state is in memory only. When the PS is killed, its successor is another incarnation under a new shard map epoch;
the workers ask it which step is open and compute that step again. Nothing is lost, because nothing of an uncommitted
step has changed a row or a parameter.
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
    """A step's gradient, vector float32 [elements] (gradients summed, buffers averaged), and the positions, samples and
    loss that it accounts for."""

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
    """A request to answer when `step` may begin."""

    peer: bytes
    request: int
    step: int


@dataclass(slots=True)
class StepBoard:
    """The board of the open step. parameters: the first `parameters` elements of a vector are gradients, the rest are
    buffers."""

    parameters: int
    _step: int = 0
    _micros: dict[int, tuple[DensePushMsg, Float32]] = field(default_factory=dict)
    _left_out: set[int] = field(default_factory=set)
    _waiters: list[StepWaiter] = field(default_factory=list)

    def forget(self) -> None:
        """The shard map has changed: drops the open step and all waiting requests. The workers will ask again."""
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
        """Leaves a micro-batch out: drops its push, and ignores later pushes of it except the one with `is_left_out`.
        The step waits for that push, which the worker sends when no PS has rows of the micro-batch any more."""
        self._begin(step)
        if micro not in self._left_out:  # otherwise the push with `is_left_out` may have come already: keep it
            self._left_out.add(micro)
            self._micros.pop(micro, None)

    def stage(self, message: DensePushMsg, vector: Float32) -> StepGradient | None:
        """Takes a micro-batch of the open step; vector float32 [elements] is kept. A repeated one is ignored.

        Returns the step's gradient when this was the last missing micro-batch, otherwise None. Raises ProtocolError for
        a number outside the step.
        """
        self._begin(message.step)
        if not 0 <= message.micro < message.micros or len(self._micros) > message.micros:
            raise ProtocolError(
                f"micro-batch {message.micro} of {message.micros} of step {message.step}: the number is out of range, "
                f"or {len(self._micros)} micro-batches came already"
            )
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
        """The sum of the micro-batches in the order of their numbers; buffers are averaged, weighted by samples."""
        pushes = [self._micros[micro] for micro in sorted(self._micros)]
        first, last = pushes[0][0], pushes[-1][0]
        vector = pushes[0][1].copy()
        for _, other in pushes[1:]:
            vector[: self.parameters] += other[: self.parameters]
        samples = sum(push.samples for push, _ in pushes)
        if len(pushes) > 1 and samples and len(vector) > self.parameters:
            # a micro-batch without samples has no say: 0 times an infinite buffer would be NaN
            shares = [(push.samples / samples, other[self.parameters :]) for push, other in pushes if push.samples]
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
        """Adds a waiting request. It replaces an older request of the same peer."""
        self._waiters = [known for known in self._waiters if known.peer != waiter.peer]
        self._waiters.append(waiter)

    def due(self, step: int) -> tuple[StepWaiter, ...]:
        """Removes and returns the requests to answer now. step: the first step that is not committed."""
        due = tuple(waiter for waiter in self._waiters if waiter.step <= step)
        self._waiters = [waiter for waiter in self._waiters if waiter.step > step]
        return due
