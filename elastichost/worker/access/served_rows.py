"""Served access: pulls the batch's unique rows; the model's key values are positions among these rows."""

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
    """A batch whose rows are not pulled yet. tag: a number that the caller chose, such as the lease id."""

    samples: SampleBatch
    tag: int
    unique: UniqueKeys
    shape: BatchShape
    lookup_s: float


class ServedRowPreparer(RowPreparer):
    """Prepares batches with one pull each. Sync mode calls `find_keys` and `with_rows` and pulls between them."""

    batches_ahead: ClassVar[int] = PREFETCH_PULLED

    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        """Implements `RowPreparer.prepare`."""
        began_s = perf_counter()
        keyed = self.find_keys(batch, lease_id)
        unique = keyed.unique
        pulled = self.channel.pull(unique.keys, unique.bounds, weights=True, create=create, clock=clock)
        return self.with_rows(keyed, pulled, epoch=epoch, lookup_s=perf_counter() - began_s)

    def find_keys(self, batch: SampleBatch, tag: int) -> KeyedBatch:
        """Finds the unique keys to pull for the batch. Raises IdOutOfRangeError naming table, feature and id."""
        began_s = perf_counter()
        shape = self._shape_of(batch)
        unique = self._unique.find(self._keys(batch, shape.bounds), shape.bounds)
        return KeyedBatch(batch, tag, unique, shape, perf_counter() - began_s)

    def with_rows(self, keyed: KeyedBatch, pulled: PulledRows, *, epoch: int, lookup_s: float) -> PreparedBatch:
        """The prepared batch, from the rows that were pulled for its unique keys: key values are positions among them.
        Keys without a row are left out of their bags."""
        unique, shape = keyed.unique, keyed.shape
        gaps = len(pulled.rows) > 0 and int(pulled.rows.min()) < 0
        if gaps:
            self._count_without_row(unique, pulled, shape.bounds)
            self._unique.leave_out(unique, pulled.rows, shape.bounds)
        has_row = unique.positions >= 0 if gaps else None
        return self._prepared(keyed.samples, shape, unique.positions, has_row, pulled, keyed.tag, epoch, lookup_s)
