"""Served access: rows of a batch are pushed to their owners, and its commit follows when all have staged theirs.

The owners apply what is staged when they learn that it is committed. So a killed worker tears no batch. See
"A served batch: staged, committed, applied" in ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from elastichost.plan import ProcessId
from elastichost.wire.codec import Frame
from elastichost.wire.data import DensePushMsg
from elastichost.worker.access.row_channels import PushChannel
from elastichost.worker.access.served import NO_GRADIENTS, GradientSums, RowGradients
from elastichost.worker.channels.channel import Channel, DirectoryHolder, Pump
from elastichost.worker.commit.dense_transport import DenseParameters, DenseVector, GradientFrames
from elastichost.worker.commit.lease_commit import BatchRange, ModelCommit

if TYPE_CHECKING:
    from elastichost.worker.access.mixed import MixedLookup
    from elastichost.worker.access.rows import PreparedBatch
    from elastichost.worker.access.served import ServedLookup

__all__ = ["ServedCommit"]


class ServedCommit(ModelCommit):
    """One batch is on the way, while the next is being computed. rows: where rows of a batch go through first."""

    def __init__(
        self,
        holder: DirectoryHolder,
        pump: Pump,
        flat: DenseVector,
        parameters: DenseParameters,
        rows: PushChannel,
        lookups: Sequence[ServedLookup | MixedLookup],
    ) -> None:
        super().__init__(holder, parameters, pump)
        self._flat, self._rows = flat, rows
        self._lookups = lookups
        self._frames = GradientFrames(len(flat.values))
        self._sums = GradientSums()
        self._gradients: RowGradients = NO_GRADIENTS  # of the batch that is being computed

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Implements `CommitStrategy.channels`."""
        return self.channel, self._rows

    @property
    def next_sequence(self) -> int:
        """Implements `LeaseCommit.next_sequence`: rows of the batch before may be on their way."""
        return self._stream.sequence + (1 if self._rows.is_empty else 2)

    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Implements `ModelCommit.load`: the pulled rows, and where their gradients are after the backward pass."""
        sums = self._sums.zeros(self.next_sequence, len(batch.pulled.weights))
        for lookup in self._lookups:
            lookup.load(batch.pulled, sums)
        self._gradients = RowGradients(batch.pulled, sums)

    def before_backward(self) -> float:
        """Implements `ModelCommit.before_backward`: commits the batch before if its rows are staged."""
        self._poll_rows()
        return 0.0

    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Implements `LeaseCommit.commit`. Sends the rows of the batch; its push follows when they are staged. Waits for the batch
        before to be committed."""
        # Its own gradients first: what comes while it waits for the batch before are other parameters and buffers.
        self._frames.write(self._flat, self.next_sequence)
        push = self._push_of(batch, learning_rate_scale, mailbox=-1)
        self._settle_commits()
        self._rows.begin(self._gradients, push)

    def poll(self) -> None:
        """Implements `LeaseCommit.poll`."""
        self._poll_rows()
        super().poll()

    def settle(self) -> None:
        """Implements `LeaseCommit.settle`."""
        self._settle_commits()
        self._rows.settle()

    def wait_for_peers(self, batch: int, staleness: int) -> None:
        """Implements `LeaseCommit.wait_for_peers`."""
        self._settle_rows()  # a batch counts as finished when its commit has left, on this very connection
        super().wait_for_peers(batch, staleness)

    def _poll_rows(self) -> None:
        """Commits the batch before if its rows are staged. Never blocks, and leaves the model as it is."""
        if (push := self._rows.poll()) is not None:
            self._release(push)

    def _settle_rows(self) -> None:
        if not self._rows.is_empty:
            self._release(self._rows.wait())

    def _settle_commits(self) -> None:
        """A commit that is refused brings its rows back on their way."""
        while True:
            self._settle_rows()
            if self._stream.is_empty:
                return
            self._wait()

    def _frames_of(self, push: DensePushMsg) -> tuple[Frame, ...]:
        """Implements `LeaseCommit._frames_of`."""
        return (self._frames.frame(push.sequence),)

    def _committed(self, push: DensePushMsg, by: ProcessId | None) -> None:
        """Implements `LeaseCommit._committed`: the other owners of its rows hear of it."""
        super()._committed(push, by)
        if by is not None:
            self._rows.confirm(push.sequence, by.index)

    def _refused(self, request: int) -> None:
        """Implements `LeaseCommit._refused`: its rows were staged under an older shard map, so they are staged again."""
        push = self._stream.withdraw(request)
        if push is None:
            return  # refused twice: it was sent twice
        self.channel.wait_newer(push.shard_map_epoch)
        self._rows.again(msgspec.structs.replace(push, request=self.channel.next_request()))
