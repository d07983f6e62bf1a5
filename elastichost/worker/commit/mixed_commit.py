"""Mixed access: rows of the worker's own host change in place, those of other hosts are staged as served ones.

The commit is that of served access, also of a batch that pushes nothing. Rows change in place only when the batch
before is committed: so a killed worker tears one batch at most.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elastichost.worker.access.row_channels import PushChannel
from elastichost.worker.channels.channel import DirectoryHolder, Pump
from elastichost.worker.channels.exchange import MapsLeft
from elastichost.worker.commit.dense_transport import DenseVector, HeldParameters, MappedParameters
from elastichost.worker.commit.lease_commit import BatchRange
from elastichost.worker.commit.served_commit import ServedCommit

if TYPE_CHECKING:
    from elastichost.arena.watermarks import Watermarks
    from elastichost.worker.access.mixed import MixedLookup
    from elastichost.worker.access.rows import PreparedBatch

__all__ = ["MixedCommit"]


class MixedCommit(ServedCommit):
    """parameters: mapped on the host of the dense vector, else held until the next batch; watermarks: of the worker's
    own host."""

    _lookups: Sequence[MixedLookup]

    def __init__(
        self,
        holder: DirectoryHolder,
        pump: Pump,
        flat: DenseVector,
        parameters: MappedParameters | HeldParameters,
        rows: PushChannel,
        watermarks: Watermarks,
        lookups: Sequence[MixedLookup],
    ) -> None:
        super().__init__(holder, pump, flat, parameters, rows, lookups)
        self._watermarks = watermarks
        self._maps = MapsLeft()
        self._mapped_by = 0  # epoch of the shard map by which the batch that is being computed was prepared

    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Implements `ModelCommit.load`."""
        super().load(batch, learning_rate_scale)
        self._mapped_by = batch.mapped_by
        for lookup in self._lookups:
            lookup.set_learning_rate_scale(learning_rate_scale)

    def before_backward(self) -> float:
        """Implements `ModelCommit.before_backward`: waits for the commit of the batch before."""
        began_s = time.monotonic()
        self._settle_commits()
        waited_s = time.monotonic() - began_s
        self._watermarks.note_begun(self._process.index, self._process.incarnation, self.next_sequence)
        self._poll_rows()
        return waited_s

    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Implements `LeaseCommit.commit`."""
        self._maps.trained(self._mapped_by)
        super().commit(batch, learning_rate_scale)

    def leave_out(self) -> None:
        """Implements `ModelCommit.leave_out`."""
        self._maps.trained(self._mapped_by)
        super().leave_out()

    def unmapped_epoch(self, *, is_idle: bool) -> int | None:
        """Implements `ModelCommit.unmapped_epoch`: buckets that are to go to another host are copied once nobody changes rows of
        them in place any more."""
        return self._maps.due(self._holder.epoch, is_idle=is_idle)
