"""From a batch of ids to a batch of rows, in the prefetch thread: lookups, misses, pulls.

Direct access: key values become row numbers of the arena; ids without a row are asked of their PS in one message
per PS. Served access: key values become positions among the batch's unique rows, whose weights are pulled.
An id that has no row (not admitted yet, or unknown while evaluating) leaves its bag.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt

from elastichost.arena import kernels
from elastichost.arena.arena import Arena
from elastichost.datasets.api import SampleBatch
from elastichost.errors import IdOutOfRangeError
from elastichost.specs import ModelSpec, TableSpec
from elastichost.worker.channel import PullChannel
from elastichost.worker.served import PulledRows

__all__ = ["PreparedBatch", "RowPreparer"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch ready for the model. `values` int64 in KeyedJaggedTensor order; `offsets` int64 [features * size + 1];
    `length_per_key` one int per feature; `pulled` with served access only."""

    samples: SampleBatch
    lease_id: int
    epoch: int
    values: Int64Array
    lengths: Int64Array
    offsets: Int64Array
    length_per_key: list[int]
    pulled: PulledRows | None
    lookup_s: float


class RowPreparer:
    """Turns SampleBatches into PreparedBatches. Belongs to one thread.

    features: the job's categorical columns in order; files: names for error messages.
    """

    def __init__(
        self, arena: Arena, features: tuple[str, ...], files: tuple[str, ...], channel: PullChannel, *, served: bool
    ) -> None:
        self._arena = arena
        self._model: ModelSpec = arena.model
        self._features = features
        self._files = files
        self.channel = channel
        self._served = served
        self._table_of = [self._find_table(feature) for feature in features]
        self._features_of = [
            tuple(number for number, table in enumerate(self._table_of) if table.index == spec.index)
            for spec in self._model.tables
        ]

    def _find_table(self, feature: str) -> TableSpec:
        return next(table for table in self._model.tables if feature in table.features)

    def prepare(self, batch: SampleBatch, *, lease_id: int, epoch: int, create: bool, clock: int) -> PreparedBatch:
        """Raises IdOutOfRangeError naming table, feature and id."""
        began_s = perf_counter()
        lengths = batch.lengths.astype(np.int64)
        per_key = lengths.reshape(len(self._features), batch.size).sum(axis=1)
        bounds = np.concatenate([[0], np.cumsum(per_key)])
        if self._served:
            values, pulled = self._served_values(batch, bounds, create, clock)
        else:
            values, pulled = self._direct_values(batch, bounds, create, clock), None
        if len(values) and values.min() < 0:
            keep = values >= 0
            bag = np.repeat(np.arange(len(lengths)), lengths)
            lengths = np.bincount(bag[keep], minlength=len(lengths)).astype(np.int64)
            values = values[keep]
            per_key = lengths.reshape(len(self._features), batch.size).sum(axis=1)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return PreparedBatch(
            samples=batch,
            lease_id=lease_id,
            epoch=epoch,
            values=values,
            lengths=lengths,
            offsets=offsets,
            length_per_key=per_key.tolist(),
            pulled=pulled,
            lookup_s=perf_counter() - began_s,
        )

    # --- direct ---------------------------------------------------------------------------------------------

    def _direct_values(self, batch: SampleBatch, bounds: Int64Array, create: bool, clock: int) -> Int64Array:
        values = np.empty(len(batch.keys), dtype=np.int64)
        missing: dict[int, list[Int64Array]] = {}
        for number, table in enumerate(self._table_of):
            keys, out = batch.keys[bounds[number] : bounds[number + 1]], values[bounds[number] : bounds[number + 1]]
            if not table.is_dynamic:
                self._fixed_rows(batch, number, table, keys, out)
            elif self._arena.lookup(table.index, keys, out):
                missing.setdefault(table.index, []).append(keys[out < 0])
        if missing and create:
            self._create(missing, clock)
            for number, table in enumerate(self._table_of):
                if table.index in missing:
                    keys = batch.keys[bounds[number] : bounds[number + 1]]
                    self._arena.lookup(table.index, keys, values[bounds[number] : bounds[number + 1]])
        if create:
            self._mark_seen(values, bounds, clock)
        return values

    def _create(self, missing: dict[int, list[Int64Array]], clock: int) -> None:
        unique = {table: kernels.unique_keys(np.concatenate(parts))[0] for table, parts in missing.items()}
        self.channel.pull(self._model.tables, unique, embeddings=(), create=True, clock=clock)

    def _mark_seen(self, values: Int64Array, bounds: Int64Array, clock: int) -> None:
        """Workers with direct access note sightings themselves: the PS does not see their hits."""
        for number, table in enumerate(self._table_of):
            if table.evict_after_samples:
                rows = values[bounds[number] : bounds[number + 1]]
                kernels.mark_seen(self._arena.seen_view(table.index), rows, kernels.seen_stamp(clock))

    # --- served ---------------------------------------------------------------------------------------------

    def _served_values(
        self, batch: SampleBatch, bounds: Int64Array, create: bool, clock: int
    ) -> tuple[Int64Array, PulledRows]:
        values = np.empty(len(batch.keys), dtype=np.int64)
        unique: dict[int, Int64Array] = {}
        inverses: dict[int, Int64Array] = {}
        for spec, numbers in zip(self._model.tables, self._features_of, strict=True):
            parts = [self._served_keys(batch, number, spec, bounds) for number in numbers]
            keys = parts[0] if len(parts) == 1 else np.concatenate(parts)
            unique[spec.index], inverses[spec.index] = kernels.unique_keys(keys)
        wanted = tuple(e.index for e in self._model.embeddings)
        pulled = self.channel.pull(self._model.tables, unique, embeddings=wanted, create=create, clock=clock)
        for spec, numbers in zip(self._model.tables, self._features_of, strict=True):
            inverse, rows, start = inverses[spec.index], pulled.rows[spec.index], 0
            if len(rows) and rows.min() < 0:
                inverse = np.where(rows[inverse] >= 0, inverse, -1)
            for number in numbers:
                count = int(bounds[number + 1] - bounds[number])
                values[bounds[number] : bounds[number + 1]] = inverse[start : start + count]
                start += count
        return values, pulled

    def _served_keys(self, batch: SampleBatch, number: int, table: TableSpec, bounds: Int64Array) -> Int64Array:
        keys = batch.keys[bounds[number] : bounds[number + 1]]
        if table.is_dynamic:
            return keys
        out = np.empty(len(keys), dtype=np.int64)
        self._fixed_rows(batch, number, table, keys, out)
        return out

    # --- both -----------------------------------------------------------------------------------------------

    def _fixed_rows(self, batch: SampleBatch, number: int, table: TableSpec, keys: Int64Array, out: Int64Array) -> None:
        modulo, is_string = table.out_of_range == "modulo", table.key_kind == "string"
        bad = int(kernels.fixed_rows(keys, table.rows, modulo, is_string, out))
        if bad < 0:
            return
        lengths = batch.lengths.reshape(len(self._features), batch.size)[number]
        sample = int(np.searchsorted(np.cumsum(lengths), bad, side="right"))
        raise IdOutOfRangeError(
            f"column {self._features[number]!r}: id {int(keys[bad])} is outside table {table.name!r}, which has rows "
            f"0 to {table.rows - 1} (sample {sample} of the batch at position {batch.start} of unit {batch.unit}, "
            f"in {', '.join(self._files)})",
            hint=f'set tables.{table.name}.rows higher or to "dynamic", or out_of_range = "modulo"',
        )
