"""Direct access: turns ids into row numbers of the mapped arena.

Rows for unknown ids are requested from their PS, in one message per PS. The PS creates them and publishes them in the
index; the worker then looks these ids up again.
"""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from elastichost.arena import kernels
from elastichost.datasets.api import SampleBatch
from elastichost.worker.access.rows import PreparedBatch, RowPreparer
from elastichost.worker.access.served import NOTHING_PULLED
from elastichost.worker.pipeline import PREFETCH_BATCHES

__all__ = ["DirectRowPreparer"]

Int64Array = npt.NDArray[np.int64]


class DirectRowPreparer(RowPreparer):
    """Prepares batches by lookups in the arena's index."""

    batches_ahead: ClassVar[int] = PREFETCH_BATCHES

    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        """Implements `RowPreparer.prepare`."""
        began_s = perf_counter()
        shape = self._shape_of(batch)
        values = np.empty(len(batch.keys), dtype=np.int64)
        self._fixed_rows(batch, shape.bounds, values)
        gaps = self._look_up(batch.keys, shape.bounds, values, create, clock)
        has_row = values >= 0 if gaps else None
        lookup_s = perf_counter() - began_s
        return self._prepared(batch, shape, values, has_row, NOTHING_PULLED, lease_id, epoch, lookup_s)

    def _look_up(self, keys: Int64Array, bounds: Int64Array, values: Int64Array, create: bool, clock: int) -> bool:
        """Writes the row numbers of keys of dynamic tables to `values` int64 [n], at the positions of their keys.
        Returns whether some are -1. Positions of fixed tables are not changed."""
        missing: dict[int, Int64Array] = {}  # by the feature's number
        for number, table in self._dynamic:
            of_feature, out = keys[bounds[number] : bounds[number + 1]], values[bounds[number] : bounds[number + 1]]
            if self._arena.lookup(table.index, of_feature, out):
                missing[number] = of_feature[out < 0]
        gaps = bool(missing)
        if missing and create:
            self._create(missing, clock)
            left = 0
            for number, table in self._dynamic:
                if number in missing:
                    of_feature = keys[bounds[number] : bounds[number + 1]]
                    left += self._arena.lookup(table.index, of_feature, values[bounds[number] : bounds[number + 1]])
            gaps = left > 0
        if create:
            self._mark_seen(values, bounds, clock)
        return gaps

    def _create(self, missing: dict[int, Int64Array], clock: int) -> None:
        counts = [len(missing[number]) if number in missing else 0 for number in range(len(self._features))]
        keys = np.concatenate([missing[number] for number in sorted(missing)])
        bounds = np.cumsum([0, *counts])
        unique = self._unique.find(keys, bounds)
        pulled = self.channel.pull(unique.keys, unique.bounds, weights=False, create=True, clock=clock)
        self._count_without_row(unique, pulled, bounds)

    def _mark_seen(self, values: Int64Array, bounds: Int64Array, clock: int) -> None:
        """Stamps the rows that the batch uses. The worker does it because the PS receives only requests for misses."""
        for number, table in self._dynamic:
            if self._arena.notes_seen(table.index):
                rows = values[bounds[number] : bounds[number + 1]]
                kernels.mark_seen(self._arena.seen_view(table.index), rows, kernels.seen_stamp(clock))
