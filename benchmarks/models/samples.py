"""The samples of a job as tensors, read with pyarrow into memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.datasets.kernels.hashing import hash_arrow_strings

__all__ = ["Keys", "Rows", "Samples", "batch_of", "read_samples", "rows_of"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Keys:
    """The ids of a column. values: int64, sample after sample; a text is its XXH64. offsets: int64 [samples + 1]."""

    values: Int64Array
    offsets: Int64Array


@dataclass(frozen=True, slots=True)
class Samples:
    """A file. dense: float32 [n, numbers]; labels: float32 [n, labels]; keys: of each id column; groups: the number of
    samples of each row group."""

    dense: torch.Tensor
    labels: torch.Tensor
    keys: dict[str, Keys]
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table for the ids of its columns: row i for known[i], ascending, and row len(known) for other ids.
    keeps_places: the columns in which an id without a row keeps its place; in others it is left out."""

    known: Int64Array
    keeps_places: frozenset[str]


def read_samples(file: Path, dense: tuple[str, ...], labels: tuple[str, ...], features: tuple[str, ...]) -> Samples:
    """Reads a Parquet file without nulls among its numbers. Columns that the file does not have are zeros or empty."""
    with pq.ParquetFile(file) as opened:
        groups = tuple(opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups))
        table: pa.Table = opened.read().combine_chunks()
    return Samples(
        dense=_numbers(table, dense),
        labels=_numbers(table, labels),
        keys={name: _keys(table, name) for name in features},
        groups=groups,
    )


def rows_of(samples: Samples, features: tuple[str, ...], keeps_places: frozenset[str]) -> Rows:
    """One row for each id that occurs in these columns."""
    return Rows(np.unique(np.concatenate([samples.keys[name].values for name in features])), keeps_places)


def batch_of(
    samples: Samples, rows: dict[str, Rows], start: int, stop: int
) -> tuple[torch.Tensor, KeyedJaggedTensor, torch.Tensor]:
    """(dense, sparse, labels) of the samples [start, stop). rows: of each id column."""
    values, lengths = [], []
    for name, keys in samples.keys.items():
        first, last = keys.offsets[start], keys.offsets[stop]
        given, of_column = keys.values[first:last], rows[name]
        found = np.searchsorted(of_column.known, given)
        found[of_column.known[np.minimum(found, len(of_column.known) - 1)] != given] = len(of_column.known)
        counts = np.diff(keys.offsets[start : stop + 1])
        if name not in of_column.keeps_places:
            sample = np.repeat(np.arange(stop - start), counts)
            is_known = found < len(of_column.known)
            found, counts = found[is_known], np.bincount(sample[is_known], minlength=stop - start)
        values.append(torch.from_numpy(found))
        lengths.append(torch.from_numpy(counts))
    sparse = KeyedJaggedTensor(keys=list(samples.keys), values=torch.cat(values), lengths=torch.cat(lengths))
    return samples.dense[start:stop], sparse, samples.labels[start:stop]


def _numbers(table: pa.Table, names: tuple[str, ...]) -> torch.Tensor:
    """float32 [n, names]"""
    given = np.zeros((table.num_rows, len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        if name in table.column_names:
            given[:, place] = table.column(name).to_numpy()
    return torch.from_numpy(given)


def _keys(table: pa.Table, name: str) -> Keys:
    if name not in table.column_names:
        return Keys(np.empty(0, dtype=np.int64), np.zeros(table.num_rows + 1, dtype=np.int64))
    column: Any = table.column(name).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        offsets = column.offsets.to_numpy().astype(np.int64)
        return Keys(_hashed(column.values)[offsets[0] : offsets[-1]], offsets - offsets[0])
    known = column.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(known))).astype(np.int64)
    return Keys(_hashed(column.drop_null()), offsets)


def _hashed(column: pa.Array) -> Int64Array:
    if pa.types.is_integer(column.type):
        given: Int64Array = column.to_numpy().astype(np.int64)
        return given
    return hash_arrow_strings(column.cast(pa.string()))
