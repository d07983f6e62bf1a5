"""Mixed access: rows of the worker's own host change in place; rows of other hosts are staged with their owners.

Rules
1. The commit is that of served access (`served_commit`), also for a batch that has no rows to push.
2. Rows change in place for batch n only when batch n - 1 is committed, and after the watermark (incarnation, n) is
   stored in the arena of the worker's host.
3. The model does not change between forward and backward: parameters that arrive meanwhile are held until the next
   batch (`HeldParameters`), or read from the arena at the next `refresh` (`MappedParameters`).

Theory of operation. For batch n, in this order:

    forward -> (n - 1 committed) -> watermark := n -> backward: own rows change in place, other gradients are summed
    -> PushMsg to every owner of the other rows -> all parts staged -> DensePushMsg -> committed -> acknowledged

A kill of the worker before the watermark is stored leaves what served access leaves. A kill between the watermark and
the commit tears batch n: its rows on this host may be updated, and its staged parts are dropped. The watermark
beyond the applied record shows it; rule 2 limits it to one batch. The supervisor reads the watermarks of another
machine in its replica of that arena, which the agent updates before it reports the end of the process.

Buckets that are about to move to another host are listed as `served` in a new shard map. `unmapped_epoch` reports when
this worker updates no row in place by an older map; the copying begins when all workers have reported that.
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
    """The commit strategy of mixed access. parameters: mapped on the host of the dense vector, elsewhere held until the
    next batch. watermarks: those of the worker's own host."""

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
        self._mapped_by = 0  # epoch of the shard map by which the batch that is computed now was prepared

    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Implements `ModelCommit.load`."""
        super().load(batch, learning_rate_scale)
        self._mapped_by = batch.mapped_by
        for lookup in self._lookups:
            lookup.set_learning_rate_scale(learning_rate_scale)

    def before_backward(self) -> float:
        """Implements `ModelCommit.before_backward`: waits for the commit of the previous batch, then stores the
        watermark."""
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
        """Implements `ModelCommit.unmapped_epoch`: buckets that move to another host are copied when no worker changes
        their rows in place any more."""
        return self._maps.due(self._holder.epoch, is_idle=is_idle)
