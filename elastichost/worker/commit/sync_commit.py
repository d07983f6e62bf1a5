"""Sync mode: a micro-batch's rows are staged with their owners, its dense part with the dense owner.

The dense owner commits the step when it has all of its micro-batches; nobody here accounts for positions.
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
    """Of one micro-batch after the other: `begin`, `load`, forward, backward, `stage`, then `push`; one without samples
    is pushed without being staged."""

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
        self._gradients: RowGradients = NO_GRADIENTS  # of the micro-batch that is being computed
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
        """Before the present step."""
        return self._step.samples_applied

    def begin_step(self, step: StepStart) -> None:
        """Its dense vector goes into the model."""
        self._step = step
        self._load_vector()

    def begin(self) -> None:
        """A micro-batch begins: a forward pass before it may have changed the model's buffers."""
        if self._has_buffers:
            self._load_vector()
        self._flat.zero_gradients()

    def load(self, pulled: PulledRows) -> None:
        """Gives the model the micro-batch's rows, and the rows' gradients their place."""
        sums = self._sums.zeros(0, len(pulled.weights))
        for lookup in self._lookups:
            lookup.load(pulled, sums)
        self._gradients = RowGradients(pulled, sums)

    def leave_out(self) -> None:
        """Nothing of what was computed counts."""
        self._load_vector()
        self._flat.zero_gradients()

    def stage(self, directory: Directory, task: MicroBatch, learning_rate_scale: float) -> None:
        """Returns when every owner has staged its rows. Raises StaleDirectoryError."""
        self.channel.stage(directory, task, self._gradients, learning_rate_scale)
        crash_point("worker.batch.before_commit")

    def push(
        self, directory: Directory, task: MicroBatch, learning_rate_scale: float, samples: int, loss: float
    ) -> None:
        """Gives the dense owner the gradients that lie in the model. loss: mean of so many samples. Raises
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
