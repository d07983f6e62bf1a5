"""Mixed access: looks up ids of the worker's own host in its arena, and pulls the rows of all other ids.

The key values are described in `arena.rows.place_kernels`.
"""

from __future__ import annotations

from time import perf_counter
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.datasets.api import SampleBatch
from elastichost.worker.access.access_router import Places, SplitBatch
from elastichost.worker.access.direct_rows import DirectRowPreparer
from elastichost.worker.access.row_channels import PullChannel
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import PulledRows
from elastichost.worker.model.bags import NO_ROW
from elastichost.worker.pipeline import PREFETCH_PULLED

__all__ = ["MixedRowPreparer"]

Int64Array = npt.NDArray[np.int64]


class MixedRowPreparer(DirectRowPreparer):
    """Prepares batches whose rows lie in both places. host: the host of the mapped arena."""

    batches_ahead: ClassVar[int] = PREFETCH_PULLED

    def __init__(
        self, arena: Arena, features: tuple[str, ...], files: tuple[str, ...], channel: PullChannel, host: int
    ) -> None:
        super().__init__(arena, features, files, channel)
        self._places = Places(self._model.tables, [table.index for table in self._table_of], host)

    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        """Implements `RowPreparer.prepare`."""
        began_s = perf_counter()
        shape = self._shape_of(batch)
        directory = self.channel.directory()
        split = self._places.split(self._keys(batch, shape.bounds), shape.bounds, directory)
        values, pulled = self._mixed_values(split, create, clock)
        has_row, lookup_s = values != NO_ROW, perf_counter() - began_s
        return self._prepared(batch, shape, values, has_row, pulled, lease_id, epoch, lookup_s, directory.epoch)

    def _mixed_values(self, split: SplitBatch, create: bool, clock: int) -> tuple[Int64Array, PulledRows]:
        """(key values int64 [n], pulled rows). A value is a row number of the arena, the complement of a position among
        the pulled rows, or NO_ROW."""
        values, mapped, elsewhere = split.values, split.mapped, split.elsewhere
        rows = np.empty(len(mapped.keys), np.int64)
        gaps = self._look_up(mapped.keys, mapped.bounds, rows, create, clock)
        values[mapped.at] = np.where(rows < 0, NO_ROW, rows) if gaps else rows
        unique = self._unique.find(elsewhere.keys, elsewhere.bounds)
        pulled = self.channel.pull(unique.keys, unique.bounds, weights=True, create=create, clock=clock)
        self._count_without_row(unique, pulled, elsewhere.bounds)
        self._unique.leave_out(unique, pulled.rows, elsewhere.bounds)
        values[elsewhere.at] = np.where(unique.positions < 0, NO_ROW, ~unique.positions)
        return values, pulled
