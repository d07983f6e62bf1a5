"""How a worker computes one leased batch: the interface, and the step that calls the user's model operation by
operation.

`elastichost.worker.gpu.trainer` has the step of a worker with a GPU.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.commit.lease_commit import ModelCommit
from elastichost.worker.model.dense_vector import FlatDense
from elastichost.worker.model.gradient_check import backward
from elastichost.worker.steps.model_runner import ModelRunner

__all__ = ["BatchStep", "EagerStep", "StepResult"]


class StepResult(NamedTuple):
    """loss: the mean of the batch. trouble: a phrase that names what is not finite; "" when the batch can be committed.
    waited_s: seconds spent waiting for the commit of an earlier batch."""

    loss: float
    trouble: str
    waited_s: float


class BatchStep(Protocol):
    """Computes batches. After `run`, the dense gradients are where the strategy's `commit` finds them, and mapped rows
    are updated."""

    def stage(self, batch: PreparedBatch) -> PreparedBatch:
        """Prepares a batch further, in the thread that reads ahead."""
        ...

    def run(self, batch: PreparedBatch, strategy: ModelCommit) -> StepResult:
        """Forward and backward pass of a batch. With trouble, mapped rows may be updated in part, but never with a
        value that is not finite."""
        ...


class EagerStep:
    """The step that autograd runs, on the CPU or on a GPU."""

    def __init__(self, runner: ModelRunner, flat: FlatDense) -> None:
        self._runner, self._flat = runner, flat

    def stage(self, batch: PreparedBatch) -> PreparedBatch:
        """Implements `BatchStep.stage`."""
        return batch

    def run(self, batch: PreparedBatch, strategy: ModelCommit) -> StepResult:
        """Implements `BatchStep.run`."""
        self._flat.zero_gradients()
        loss = self._runner.loss(batch)
        value = loss.item()
        if not np.isfinite(value):
            return StepResult(value, f"the loss is {value}", 0.0)
        waited_s = strategy.before_backward()
        return StepResult(value, backward(loss, self._flat), waited_s)
