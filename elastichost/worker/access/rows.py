"""From a batch of ids to a batch of rows, in the prefetch thread: lookups, misses, pulls.

Direct access: key values become row numbers of the arena; ids without a row are asked of their PS in one message
per PS. Served access: key values become positions among the batch's unique rows, whose weights are pulled. Mixed
access does either, by where the bucket of an id is: see `arena.place_kernels` for its values.
An id that has no row (not admitted yet, or unknown while evaluating) leaves its bag. In a feature that an
`EmbeddingCollection` reads it keeps its place, as NO_ROW, so that lengths and positions are those of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import numpy.typing as npt

from elastichost.arena import kernels
from elastichost.arena.arena import Arena
from elastichost.arena.tables.dynamic_table import LEFT_OUT
from elastichost.datasets.api import SampleBatch
from elastichost.errors import IdOutOfRangeError
from elastichost.specs import ModelSpec, TableSpec
from elastichost.worker.access.access_router import Places, SplitBatch
from elastichost.worker.access.key_dedup import UniqueKeys, UniqueKeysFinder
from elastichost.worker.access.row_channels import PullChannel
from elastichost.worker.access.served import PulledRows
from elastichost.worker.model.bags import NO_ROW

__all__ = ["KeyedBatch", "PreparedBatch", "RowPreparer"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

KEPT_SHAPES = 8


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch ready for the model. `values` int64 in KeyedJaggedTensor order, NO_ROW for an id of a sequence that has
    no row; `offsets` int64 [features * size + 1]; `length_per_key` one int per feature; `pulled` with served and mixed
    access; `mapped_by`, with mixed access: epoch of the shard map by which rows count as mapped; `without_row`: ids
    that have no row for want of memory."""

    samples: SampleBatch
    lease_id: int
    epoch: int
    values: Int64Array
    lengths: Int64Array
    offsets: Int64Array
    length_per_key: list[int]
    pulled: PulledRows | None
    lookup_s: float
    mapped_by: int = 0
    without_row: int = 0


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Served access: a batch whose rows are not pulled yet. `tag` is the caller's."""

    samples: SampleBatch
    tag: int
    unique: UniqueKeys
    shape: _Shape
    lookup_s: float


@dataclass(frozen=True, slots=True)
class _Shape:
    """Of a batch: int64 lengths [features * size] and offsets [features * size + 1] of its bags, bounds [features + 1]
    of each feature's values, and how many these are. Batches may share it: nobody writes to it."""

    lengths: Int64Array
    offsets: Int64Array
    bounds: Int64Array
    length_per_key: list[int]


class RowPreparer:
    """Turns SampleBatches into PreparedBatches. Belongs to one thread.

    features: the job's categorical columns in order; files: names for error messages. host: that of the arena, with
    mixed access; None: access is of one kind.
    """

    def __init__(
        self,
        arena: Arena,
        features: tuple[str, ...],
        files: tuple[str, ...],
        channel: PullChannel,
        *,
        served: bool,
        host: int | None = None,
    ) -> None:
        self._arena = arena
        self._model: ModelSpec = arena.model
        self._features = features
        self._files = files
        self.channel = channel
        self._served = served
        self._table_of = [self._find_table(feature) for feature in features]
        tables = [table.index for table in self._table_of]
        self._places = None if host is None else Places(self._model.tables, tables, host)
        self._unique = UniqueKeysFinder(
            [[number for number, table in enumerate(tables) if table == spec.index] for spec in self._model.tables]
        )
        self._keeps_places = np.array([feature in self._model.sequence_features for feature in features], np.bool_)
        self._dynamic = [(number, table) for number, table in enumerate(self._table_of) if table.is_dynamic]
        self._fixed_table_rows = np.array([table.rows for table in self._table_of], dtype=np.int64)
        self._rules = np.array([_rule(table) for table in self._table_of], dtype=np.int64)
        self._shapes: dict[int, _Shape] = {}
        self._without_row = 0  # ids of the batch that is being prepared

    def _find_table(self, feature: str) -> TableSpec:
        return next(table for table in self._model.tables if feature in table.features)

    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        """Raises IdOutOfRangeError naming table, feature and id."""
        began_s = perf_counter()
        if self._served:
            keyed = self.find_keys(batch, lease_id)
            unique = keyed.unique
            pulled = self.channel.pull(unique.keys, unique.bounds, weights=True, create=create, clock=clock)
            return self.with_rows(keyed, pulled, epoch=epoch, lookup_s=perf_counter() - began_s)
        shape = self._shape_of(batch)
        if self._places is not None:
            directory = self.channel.directory()
            split = self._places.split(self._keys(batch, shape.bounds), shape.bounds, directory)
            values, pulled = self._mixed_values(split, create, clock)
            has_row = values != NO_ROW
            prepared = self._prepared(batch, shape, values, has_row, pulled, lease_id, epoch, perf_counter() - began_s)
            return replace(prepared, mapped_by=directory.epoch, without_row=self._take_without_row())
        values, gaps = self._direct_values(batch, shape.bounds, create, clock)
        has_row = values >= 0 if gaps else None
        prepared = self._prepared(batch, shape, values, has_row, None, lease_id, epoch, perf_counter() - began_s)
        return replace(prepared, without_row=self._take_without_row())

    def find_keys(self, batch: SampleBatch, tag: int) -> KeyedBatch:
        """Served access: what has to be pulled for the batch. Raises IdOutOfRangeError naming table, feature and id."""
        began_s = perf_counter()
        shape = self._shape_of(batch)
        unique = self._unique.find(self._keys(batch, shape.bounds), shape.bounds)
        return KeyedBatch(batch, tag, unique, shape, perf_counter() - began_s)

    def _keys(self, batch: SampleBatch, bounds: Int64Array) -> Int64Array:
        """The batch's keys, int64; a fixed table's key is its row."""
        if len(self._dynamic) == len(self._features):
            return batch.keys
        keys = batch.keys.copy()
        self._fixed_rows(batch, bounds, keys)
        return keys

    def with_rows(self, keyed: KeyedBatch, pulled: PulledRows, *, epoch: int, lookup_s: float) -> PreparedBatch:
        """The batch with what was pulled for its unique keys: key values are positions among them."""
        unique, shape = keyed.unique, keyed.shape
        gaps = len(pulled.rows) > 0 and int(pulled.rows.min()) < 0
        if gaps:
            self._count_without_row(unique, pulled, shape.bounds)
            self._unique.leave_out(unique, pulled.rows, shape.bounds)
        has_row = unique.positions >= 0 if gaps else None
        prepared = self._prepared(keyed.samples, shape, unique.positions, has_row, pulled, keyed.tag, epoch, lookup_s)
        return replace(prepared, without_row=self._take_without_row())

    def _count_without_row(self, unique: UniqueKeys, pulled: PulledRows, bounds: Int64Array) -> None:
        """Call it before keys without a row are left out of their bags."""
        left_out = pulled.rows == LEFT_OUT
        if left_out.any():
            self._without_row += self._unique.occurrences(unique, left_out, bounds)

    def _take_without_row(self) -> int:
        """Of the batch that is prepared."""
        taken, self._without_row = self._without_row, 0
        return taken

    def _prepared(
        self,
        batch: SampleBatch,
        shape: _Shape,
        values: Int64Array,
        has_row: BoolArray | None,
        pulled: PulledRows | None,
        lease_id: int,
        epoch: int,
        lookup_s: float,
    ) -> PreparedBatch:
        """Values without a row leave their bags, or keep their places in a sequence; has_row bool [n], or None when all
        have one."""
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
        )

    def _shape_of(self, batch: SampleBatch) -> _Shape:
        """Batches of single-valued columns all have one shape, and nearly all of them one size."""
        if not batch.is_single_valued:
            return _shape(batch.lengths.astype(np.int64), len(self._features))
        known = self._shapes.get(batch.size)
        if known is None:
            if len(self._shapes) >= KEPT_SHAPES:
                self._shapes.clear()
            known = self._shapes[batch.size] = _shape(batch.lengths.astype(np.int64), len(self._features))
        return known

    # --- direct ---------------------------------------------------------------------------------------------

    def _direct_values(
        self, batch: SampleBatch, bounds: Int64Array, create: bool, clock: int
    ) -> tuple[Int64Array, bool]:
        """Row numbers, and whether some are -1."""
        values = np.empty(len(batch.keys), dtype=np.int64)
        self._fixed_rows(batch, bounds, values)
        return values, self._look_up(batch.keys, bounds, values, create, clock)

    def _look_up(self, keys: Int64Array, bounds: Int64Array, values: Int64Array, create: bool, clock: int) -> bool:
        """Row numbers of keys of dynamic tables, each at its key's place; whether some are -1. Features of fixed tables
        are passed over."""
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
        """Workers with direct access note sightings themselves: the PS does not see their hits."""
        for number, table in self._dynamic:
            if self._arena.notes_seen(table.index):
                rows = values[bounds[number] : bounds[number + 1]]
                kernels.mark_seen(self._arena.seen_view(table.index), rows, kernels.seen_stamp(clock))

    # --- mixed ----------------------------------------------------------------------------------------------

    def _mixed_values(self, split: SplitBatch, create: bool, clock: int) -> tuple[Int64Array, PulledRows]:
        """Row numbers of what is mapped, ~positions among what is pulled, and NO_ROW."""
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

    # --- both -----------------------------------------------------------------------------------------------

    def _fixed_rows(self, batch: SampleBatch, bounds: Int64Array, out: Int64Array) -> None:
        """Rows of all features of fixed tables, each at its keys' places; the others' places stay as they are."""
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


def _shape(lengths: Int64Array, features: int) -> _Shape:
    per_key = lengths.reshape(features, -1).sum(axis=1) if features else lengths
    offsets, bounds = np.zeros(len(lengths) + 1, dtype=np.int64), np.zeros(features + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    np.cumsum(per_key, out=bounds[1:])
    return _Shape(lengths, offsets, bounds, per_key.tolist())
