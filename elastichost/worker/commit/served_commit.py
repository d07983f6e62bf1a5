"""Served access: the rows of a batch are staged with their owners; the commit follows when all parts are staged.

Rules
1. Staging changes no row. An owner applies a staged part only when its batch is committed.
2. The DensePushMsg of a batch names the shard map epoch of its staging. The dense owner refuses an older epoch; the
   worker then stages the rows again by the newest map, under the same sequence number.
3. One batch is staged or being committed while the next one is computed: batch n is pushed when batch n - 1 is
   committed.

Theory of operation. For batch n, in this order:

    forward, backward -> dense gradients copied -> (n - 1 committed) -> PushMsg to every owner -> all parts staged
    -> DensePushMsg -> dense owner publishes (committed) -> acknowledged -> RowsCommittedMsg to the other owners
    -> they apply their parts under their undo records

A kill of the worker
- before the first PushMsg: nothing was written;
- before the DensePushMsg arrives: some owners hold staged parts that are never committed. They drop them when the
  supervisor settles the incarnation;
- after the commit: owners that were not notified apply their parts when the supervisor settles the incarnation.

So a killed worker tears no batch. A killed PS leaves every push staged or applied, never half of it (`ps.applier`).
See "A served batch: staged, committed, applied" in ARCHITECTURE.md.
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
    """Commits with one outstanding batch while the next one is computed. rows: the channel on which rows are staged."""

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
        self._gradients: RowGradients = NO_GRADIENTS  # those of the batch that is being computed

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Implements `CommitStrategy.channels`."""
        return self.channel, self._rows

    @property
    def next_sequence(self) -> int:
        """Implements `LeaseCommit.next_sequence`. A batch whose rows are being staged is not in the stream yet."""
        return self._stream.sequence + (1 if self._rows.is_empty else 2)

    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Implements `ModelCommit.load`: gives the lookups the pulled rows and zeros for their gradient sums."""
        sums = self._sums.zeros(self.next_sequence, len(batch.pulled.weights))
        for lookup in self._lookups:
            lookup.load(batch.pulled, sums)
        self._gradients = RowGradients(batch.pulled, sums)

    def before_backward(self) -> float:
        """Implements `ModelCommit.before_backward`: sends the commit of the previous batch if its rows are staged."""
        self._poll_rows()
        return 0.0

    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Implements `LeaseCommit.commit`. Waits until the previous batch is committed, then sends the rows; the push
        follows when they are staged."""
        # The gradients are copied before the wait: meanwhile newer parameters and buffers are loaded into the model.
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
        self._settle_rows()  # a batch counts as finished when its commit was sent, on the same connection as the clock
        super().wait_for_peers(batch, staleness)

    def _poll_rows(self) -> None:
        """Sends the commit of the previous batch if its rows are staged. Never blocks; does not change the model."""
        if (push := self._rows.poll()) is not None:
            self._release(push)

    def _settle_rows(self) -> None:
        """Waits until the rows in staging are staged, and sends their commit."""
        if not self._rows.is_empty:
            self._release(self._rows.wait())

    def _settle_commits(self) -> None:
        """Returns when every batch is committed. It loops because rows are staged again after a refused commit."""
        while True:
            self._settle_rows()
            if self._stream.is_empty:
                return
            self._wait()

    def _frames_of(self, push: DensePushMsg) -> tuple[Frame, ...]:
        """Implements `LeaseCommit._frames_of`."""
        return (self._frames.frame(push.sequence),)

    def _committed(self, push: DensePushMsg, by: ProcessId | None) -> None:
        """Implements `LeaseCommit._committed`: notifies the other owners of its rows."""
        super()._committed(push, by)
        if by is not None:
            self._rows.confirm(push.sequence, by.index)

    def _refused(self, request: int) -> None:
        """Implements `LeaseCommit._refused`: the rows were staged under an older shard map and are staged again."""
        push = self._stream.withdraw(request)
        if push is None:
            return  # a second refusal of the same push, which was sent twice
        self.channel.wait_newer(push.shard_map_epoch)
        self._rows.again(msgspec.structs.replace(push, request=self.channel.next_request()))
