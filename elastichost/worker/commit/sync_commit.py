"""Sync mode: a micro-batch's rows are staged with their owners, and its dense part with the dense owner.

Rules
1. The dense owner commits a step when it has the dense parts of all its micro-batches. A worker reports no positions:
   the crew's applied record accounts for them.
2. The rows of a micro-batch are staged with every owner before its dense part is pushed. So when the step commits, all
   its rows are staged.
3. Every micro-batch begins with the step's dense vector, because a forward pass may change the model's buffers. Its
   gradient depends only on the step and its samples; computing it twice gives the same bits and does no harm.

Theory of operation. For one micro-batch, in this order:

    begin (dense vector, zero gradients) -> load -> forward, backward -> stage (PushMsg to every owner) -> push

A kill of the worker at any point changes no row and no parameter: the step waits, the supervisor gives the micro-batch
to another worker, and parts that are staged already are the same bits. A new shard map raises StaleDirectoryError; the
caller then asks which step is open and computes its micro-batches again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from elastichost.micro_batches import MicroBatch
from elastichost.specs import DenseSpec
from elastichost.wire.crash import crash_point
from elastichost.worker.access.row_channels import RowCutter
from elastichost.worker.access.served import NO_GRADIENTS, GradientSums, PulledRows, RowGradients
from elastichost.worker.channels.channel import Channel, DirectoryHolder, Pump
from elastichost.worker.channels.routing import Directory
from elastichost.worker.commit.dense_transport import ReceivedParameters
from elastichost.worker.commit.step_channel import StepChannel, StepStart
from elastichost.worker.commit.strategy import CommitStrategy

if TYPE_CHECKING:
    from elastichost.worker.access.served import ServedLookup
    from elastichost.worker.model.dense_vector import FlatDense

__all__ = ["SyncCommit"]


class SyncCommit(CommitStrategy):
    """The commit strategy of sync mode. The calls for a micro-batch, in order: `begin`, `load`, forward and backward
    pass, `stage`, `push`. A micro-batch without samples is pushed without `load` and `stage`."""

    def __init__(
        self,
        holder: DirectoryHolder,
        pump: Pump,
        flat: FlatDense,
        dense: DenseSpec,
        cutter: RowCutter,
        lookups: Sequence[ServedLookup],
    ) -> None:
        self.channel = StepChannel(holder, cutter, dense.elements, pump)
        self._flat, self._lookups = flat, lookups
        self._parameters = ReceivedParameters(flat)
        self._sums = GradientSums()
        self._gradients: RowGradients = NO_GRADIENTS  # those of the micro-batch that is being computed
        self._has_buffers = dense.elements > dense.parameters
        self._step = StepStart(0, np.zeros(dense.elements, np.float32), 0)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Implements `CommitStrategy.channels`."""
        return (self.channel,)

    def fetch(self) -> None:
        """Implements `CommitStrategy.fetch`."""
        self._parameters.fetch(self.channel.fetch)

    @property
    def samples_applied(self) -> int:
        """Samples applied by the whole crew before the present step."""
        return self._step.samples_applied

    def begin_step(self, step: StepStart) -> None:
        """Starts a step: copies its dense vector into the model."""
        self._step = step
        self._load_vector()

    def begin(self) -> None:
        """Starts a micro-batch: restores the buffers, which an earlier forward pass may have changed, and sets the
        gradients to zero."""
        if self._has_buffers:
            self._load_vector()
        self._flat.zero_gradients()

    def load(self, pulled: PulledRows) -> None:
        """Gives the model the micro-batch's rows, and a place for the rows' gradients."""
        sums = self._sums.zeros(0, len(pulled.weights))
        for lookup in self._lookups:
            lookup.load(pulled, sums)
        self._gradients = RowGradients(pulled, sums)

    def leave_out(self) -> None:
        """Discards the result of the present micro-batch: restores the dense vector, sets the gradients to zero."""
        self._load_vector()
        self._flat.zero_gradients()

    def stage(self, directory: Directory, task: MicroBatch, learning_rate_scale: float) -> None:
        """Returns when every owner has staged its part of the rows. Raises StaleDirectoryError."""
        self.channel.stage(directory, task, self._gradients, learning_rate_scale)
        crash_point("worker.batch.before_commit")

    def push(
        self, directory: Directory, task: MicroBatch, learning_rate_scale: float, samples: int, loss: float
    ) -> None:
        """Sends the dense owner the gradients that are in the model. loss: the mean loss of the `samples`. Raises
        StaleDirectoryError."""
        vector = np.empty(len(self._step.vector), np.float32)
        self._flat.write_push(vector)
        skipped, loss_sum = task.stop - task.start - samples, loss * samples
        self.channel.push(
            directory, task, vector, learning_rate_scale, samples=samples, skipped=skipped, loss_sum=loss_sum
        )
        crash_point("worker.batch.after_commit")

    def _load_vector(self) -> None:
        self._flat.values[:] = self._step.vector
        self._flat.loaded()
