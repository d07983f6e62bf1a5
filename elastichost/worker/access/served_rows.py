"""Served access: the batch's unique rows are pulled, and key values become positions among them."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar

from elastichost.datasets.api import SampleBatch
from elastichost.worker.access.key_dedup import UniqueKeys
from elastichost.worker.access.rows import BatchShape, PreparedBatch, RowPreparer
from elastichost.worker.access.served import PulledRows
from elastichost.worker.pipeline import PREFETCH_PULLED

__all__ = ["KeyedBatch", "ServedRowPreparer"]


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """A batch whose rows are not pulled yet. `tag` is the caller's."""

    samples: SampleBatch
    tag: int
    unique: UniqueKeys
    shape: BatchShape
    lookup_s: float


class ServedRowPreparer(RowPreparer):
    """A pull for each batch. Sync mode pulls between `find_keys` and `with_rows` itself."""

    batches_ahead: ClassVar[int] = PREFETCH_PULLED

    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        """`RowPreparer.prepare`."""
        began_s = perf_counter()
        keyed = self.find_keys(batch, lease_id)
        unique = keyed.unique
        pulled = self.channel.pull(unique.keys, unique.bounds, weights=True, create=create, clock=clock)
        return self.with_rows(keyed, pulled, epoch=epoch, lookup_s=perf_counter() - began_s)

    def find_keys(self, batch: SampleBatch, tag: int) -> KeyedBatch:
        """What has to be pulled for the batch. Raises IdOutOfRangeError naming table, feature and id."""
        began_s = perf_counter()
        shape = self._shape_of(batch)
        unique = self._unique.find(self._keys(batch, shape.bounds), shape.bounds)
        return KeyedBatch(batch, tag, unique, shape, perf_counter() - began_s)

    def with_rows(self, keyed: KeyedBatch, pulled: PulledRows, *, epoch: int, lookup_s: float) -> PreparedBatch:
        """The batch with what was pulled for its unique keys: key values are positions among them."""
        unique, shape = keyed.unique, keyed.shape
        gaps = len(pulled.rows) > 0 and int(pulled.rows.min()) < 0
        if gaps:
            self._count_without_row(unique, pulled, shape.bounds)
            self._unique.leave_out(unique, pulled.rows, shape.bounds)
        has_row = unique.positions >= 0 if gaps else None
        return self._prepared(keyed.samples, shape, unique.positions, has_row, pulled, keyed.tag, epoch, lookup_s)
