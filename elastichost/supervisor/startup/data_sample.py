"""Counts the ids at the beginning of the training data, for the estimate of a job's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.datasets import Reader
from elastichost.specs import TableSpec
from elastichost.tuner.memory.distinct_ids import IdLaw, fit_ids

__all__ = ["DataSample", "TableSample", "sample_data"]

Int64 = npt.NDArray[np.int64]

SAMPLES = 262_144  # samples that are read if the job has dynamic tables; for other jobs one batch is enough
MOST_IDS = 8_000_000  # no further unit is read after this number of ids
CHUNK_SAMPLES = 8192
BEGINNINGS = 8  # beginnings of the data that the law is fitted to; each is half as long as the next one


@dataclass(frozen=True, slots=True)
class TableSample:
    """The ids of one table. ids: mean number of ids of a sample, in all features of the table. per_batch: distinct ids
    of a batch. law: how the number of distinct ids grows; None for a fixed table."""

    ids: float
    per_batch: float
    law: IdLaw | None


@dataclass(frozen=True, slots=True)
class DataSample:
    """The ids of all tables, in order. samples: number of samples that were read."""

    samples: int
    tables: tuple[TableSample, ...]

    @property
    def ids(self) -> float:
        """Mean number of ids of a sample, in all columns."""
        return sum(table.ids for table in self.tables)


def sample_data(reader: Reader, tables: Sequence[TableSpec], features: Sequence[str], batch_size: int) -> DataSample:
    """Reads the first samples and counts their ids. features: the job's categorical columns, in the order of the
    reader. batch_size: samples of a batch of one worker. Raises DataError."""
    wanted = max(batch_size, SAMPLES if any(table.is_dynamic for table in tables) else 0)
    keys, counts = _read(reader, len(features), wanted)
    samples = len(counts[0]) if len(counts) else 0
    return DataSample(samples, tuple(_of_table(table, features, keys, counts, batch_size) for table in tables))


def _read(reader: Reader, features: int, wanted: int) -> tuple[list[Int64], list[Int64]]:
    """Reads `wanted` samples, or fewer if the data end or MOST_IDS is reached. Returns two lists by feature: the ids,
    int64 [ids], and the number of ids of each sample, int64 [samples]."""
    keys: list[list[Int64]] = [[] for _ in range(features)]
    counts: list[list[Int64]] = [[] for _ in range(features)]
    read = ids = 0
    for unit in reader.describe().units:
        stop = min(unit.samples, wanted - read)
        for batch in reader.batches(unit, 0, stop, CHUNK_SAMPLES):
            lengths = batch.lengths.reshape(features, batch.size).astype(np.int64)
            parts = np.split(batch.keys, np.cumsum(lengths.sum(axis=1))[:-1])
            for feature in range(features):
                keys[feature].append(parts[feature].copy())
                counts[feature].append(lengths[feature])
            ids += len(batch.keys)
        read += stop
        if read >= wanted or ids >= MOST_IDS:
            break
    return [_joined(parts) for parts in keys], [_joined(parts) for parts in counts]


def _joined(parts: list[Int64]) -> Int64:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _of_table(
    table: TableSpec, features: Sequence[str], keys: list[Int64], counts: list[Int64], batch_size: int
) -> TableSample:
    own = [number for number, name in enumerate(features) if name in table.features]
    samples = len(counts[own[0]]) if own else 0
    if not samples:
        return TableSample(0.0, 0.0, None)
    batch = min(samples, batch_size)
    in_batch = np.concatenate([keys[number][: counts[number][:batch].sum()] for number in own])
    per_batch = len(np.unique(in_batch)) * batch_size / batch
    if not table.is_dynamic:
        per_batch = min(per_batch, table.rows)
    law = _law([keys[number] for number in own], [counts[number] for number in own]) if table.is_dynamic else None
    return TableSample(sum(len(keys[number]) for number in own) / samples, per_batch, law)


def _law(keys: list[Int64], counts: list[Int64]) -> IdLaw:
    """Fits the law of one table. keys, counts: as from `_read`, of the table's features. Draws are counted over all of
    them, sample after sample."""
    sample_of = np.concatenate([np.repeat(np.arange(len(count)), count) for count in counts])
    joined = np.concatenate(keys)
    _, numbers = np.unique(joined, return_inverse=True)
    first = np.full(int(numbers.max()) + 1 if len(numbers) else 0, len(counts[0]), np.int64)
    np.minimum.at(first, numbers, sample_of)
    first.sort()
    drawn = np.cumsum(sum(counts))
    points = [len(counts[0]) >> halvings for halvings in reversed(range(BEGINNINGS))]
    return fit_ids([(int(drawn[n - 1]), int(np.searchsorted(first, n))) for n in points if n > 0])
