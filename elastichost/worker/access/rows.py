"""Turns a batch of ids into a batch of rows, in the prefetch thread: the part that all kinds of access share.

Rules
1. Every id of a prepared batch has a row, or is out of its bag, or (in a sequence feature) has the value NO_ROW.
2. An id has no row when it is not admitted yet, is unknown during an evaluation, or got no memory (LEFT_OUT). It is
   removed from its bag, and the bag's length shrinks. In a feature that an `EmbeddingCollection` reads it keeps its
   place as NO_ROW, so that lengths and positions are those of the data; its vector is zeros and receives no gradient.
3. Preparing changes no weights. It may create rows (`create`): only the owning PS does that, on request.
4. Row numbers stay valid until the batch is committed: the PS reuses the place of an evicted row only after a grace
   period that is longer than any worker's prefetch (`ps.rows.eviction`). The exception is a bucket that was lost with
   its host: rows pulled from it are left out of the push (`RowCutter.cut`).

Theory of operation
`direct_rows` looks ids up in the mapped index and requests rows for the misses; the value of a key is its row number.
`served_rows` pulls the unique rows of the batch; the value is the position among the pulled rows of the table.
`mixed_rows` does both, by the place of the bucket; a value below 0 is the complement of a position. Each is done by one
thread ahead of training, so pulled weights may be as old as the batches that wait (PREFETCH_PULLED). When this process
is killed, the rows that were created for it stay; they have initial weights, which are a function of the id and the
seed, so it makes no difference which batch requested them first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from elastichost.arena import kernels
from elastichost.arena.arena import Arena
from elastichost.arena.tables.dynamic_table import LEFT_OUT
from elastichost.datasets.api import SampleBatch
from elastichost.errors import IdOutOfRangeError
from elastichost.specs import ModelSpec, TableSpec
from elastichost.worker.access.key_dedup import UniqueKeys, UniqueKeysFinder
from elastichost.worker.access.row_channels import PullChannel
from elastichost.worker.access.served import PulledRows
from elastichost.worker.model.bags import NO_ROW

__all__ = ["BatchShape", "PreparedBatch", "RowPreparer"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

KEPT_SHAPES = 8


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch ready for the model.

    values int64, in KeyedJaggedTensor order; NO_ROW for an id of a sequence that has no row
    lengths int64 [features * size], offsets int64 [features * size + 1], length_per_key: one int per feature
    pulled: rows that came by message; empty with direct access
    lookup_s: seconds that the lookup took
    mapped_by: mixed access: epoch of the shard map by which rows were found to be mapped
    without_row: number of ids that have no row because there was no memory
    staged: the batch on its way to a GPU (`worker.gpu.staging.StagedBatch`); None: it is not
    """

    samples: SampleBatch
    lease_id: int
    epoch: int
    values: Int64Array
    lengths: Int64Array
    offsets: Int64Array
    length_per_key: list[int]
    pulled: PulledRows
    lookup_s: float
    mapped_by: int = 0
    without_row: int = 0
    staged: object | None = None


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The shape of a batch; batches may share one, so its arrays are read-only.

    lengths int64 [features * size] and offsets int64 [features * size + 1] of the bags; bounds int64 [features + 1]:
    feature f has values[bounds[f] : bounds[f + 1]]; length_per_key: the number of values of each feature.
    """

    lengths: Int64Array
    offsets: Int64Array
    bounds: Int64Array
    length_per_key: list[int]


class RowPreparer(ABC):
    """Turns SampleBatches into PreparedBatches. Belongs to one thread.

    features: the job's categorical columns in order; files: the data's files, for error messages; batches_ahead: the
    number of prepared batches that may wait.
    """

    batches_ahead: ClassVar[int]

    def __init__(self, arena: Arena, features: tuple[str, ...], files: tuple[str, ...], channel: PullChannel) -> None:
        self._arena = arena
        self._model: ModelSpec = arena.model
        self._features = features
        self._files = files
        self.channel = channel
        self._table_of = [self._find_table(feature) for feature in features]
        tables = [table.index for table in self._table_of]
        self._unique = UniqueKeysFinder(
            [[number for number, table in enumerate(tables) if table == spec.index] for spec in self._model.tables]
        )
        self._keeps_places = np.array([feature in self._model.sequence_features for feature in features], np.bool_)
        self._dynamic = [(number, table) for number, table in enumerate(self._table_of) if table.is_dynamic]
        self._fixed_table_rows = np.array([table.rows for table in self._table_of], dtype=np.int64)
        self._rules = np.array([_rule(table) for table in self._table_of], dtype=np.int64)
        self._shapes: dict[int, BatchShape] = {}
        self._without_row = 0  # ids of the batch that is being prepared

    def _find_table(self, feature: str) -> TableSpec:
        return next(table for table in self._model.tables if feature in table.features)

    @abstractmethod
    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        """The batch with its rows. create: unknown ids get rows (training); clock: samples trained so far, which
        stamps the rows' last sighting. Raises IdOutOfRangeError naming table, feature and id."""

    def _keys(self, batch: SampleBatch, bounds: Int64Array) -> Int64Array:
        """The batch's keys, int64. The key of a fixed table is its row number."""
        if len(self._dynamic) == len(self._features):
            return batch.keys
        keys = batch.keys.copy()
        self._fixed_rows(batch, bounds, keys)
        return keys

    def _count_without_row(self, unique: UniqueKeys, pulled: PulledRows, bounds: Int64Array) -> None:
        """Counts ids that got no row because memory was full. Call it before keys without a row are removed from their
        bags."""
        left_out = pulled.rows == LEFT_OUT
        if left_out.any():
            self._without_row += self._unique.occurrences(unique, left_out, bounds)

    def _take_without_row(self) -> int:
        """The count of `_count_without_row` for the batch that is being prepared; resets it."""
        taken, self._without_row = self._without_row, 0
        return taken

    def _prepared(
        self,
        batch: SampleBatch,
        shape: BatchShape,
        values: Int64Array,
        has_row: BoolArray | None,
        pulled: PulledRows,
        lease_id: int,
        epoch: int,
        lookup_s: float,
        mapped_by: int = 0,
    ) -> PreparedBatch:
        """Builds the PreparedBatch. has_row bool [n]; None: all values have rows. Values without a row are removed from
        their bags, or become NO_ROW in a sequence."""
        if has_row is not None and not has_row.all():
            values = np.where(has_row, values, NO_ROW)
            keep = has_row | np.repeat(self._keeps_places, shape.length_per_key)
            bag = np.repeat(np.arange(len(shape.lengths)), shape.lengths)
            lengths = np.bincount(bag[keep], minlength=len(shape.lengths)).astype(np.int64)
            values, shape = values[keep], _shape(lengths, len(self._features))
        return PreparedBatch(
            samples=batch,
            lease_id=lease_id,
            epoch=epoch,
            values=values,
            lengths=shape.lengths,
            offsets=shape.offsets,
            length_per_key=shape.length_per_key,
            pulled=pulled,
            lookup_s=lookup_s,
            mapped_by=mapped_by,
            without_row=self._take_without_row(),
        )

    def _shape_of(self, batch: SampleBatch) -> BatchShape:
        """The batch's shape. Shapes of single-valued batches are cached by size: nearly all batches have one size."""
        if not batch.is_single_valued:
            return _shape(batch.lengths.astype(np.int64), len(self._features))
        known = self._shapes.get(batch.size)
        if known is None:
            if len(self._shapes) >= KEPT_SHAPES:
                self._shapes.clear()
            known = self._shapes[batch.size] = _shape(batch.lengths.astype(np.int64), len(self._features))
        return known

    def _fixed_rows(self, batch: SampleBatch, bounds: Int64Array, out: Int64Array) -> None:
        """Writes the rows of all features of fixed tables to `out` int64 [n], at the positions of their keys. Positions
        of dynamic tables are not changed. Raises IdOutOfRangeError."""
        bad = int(kernels.fixed_rows(batch.keys, bounds, self._fixed_table_rows, self._rules, out))
        if bad < 0:
            return
        number = int(np.searchsorted(bounds, bad, side="right")) - 1
        table, lengths = self._table_of[number], batch.lengths.reshape(len(self._features), batch.size)[number]
        sample = int(np.searchsorted(np.cumsum(lengths), bad - bounds[number], side="right"))
        raise IdOutOfRangeError(
            f"column {self._features[number]!r}: id {int(batch.keys[bad])} is outside table {table.name!r}, which has "
            f"rows 0 to {table.rows - 1} (sample {sample} of the batch at position {batch.start} of unit {batch.unit}, "
            f"in {', '.join(self._files)})",
            hint=f'set tables.{table.name}.rows higher or to "dynamic", or out_of_range = "modulo"',
        )


def _rule(table: TableSpec) -> int:
    if table.is_dynamic:
        return -1
    if table.key_kind == "string":
        return kernels.KEY_HASHED
    return kernels.KEY_MODULO if table.out_of_range == "modulo" else kernels.KEY_CHECKED


def _shape(lengths: Int64Array, features: int) -> BatchShape:
    per_key = lengths.reshape(features, -1).sum(axis=1) if features else lengths
    offsets, bounds = np.zeros(len(lengths) + 1, dtype=np.int64), np.zeros(features + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    np.cumsum(per_key, out=bounds[1:])
    return BatchShape(lengths, offsets, bounds, per_key.tolist())
