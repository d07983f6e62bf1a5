"""Random lookups, with the arrays that the CPU's kernels take and the tensors that the GPU's kernels take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from elastichost.arena.rows import bag_kernels, bag_updates

__all__ = ["Case", "random_case"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """One call. rows, state float32, flat. entries, values, offsets as `bag_kernels` defines them; updates, rates as
    `bag_updates`."""

    dims: list[int]
    rows: Float32
    state: Float32
    entries: Int64
    values: Int64
    offsets: Int64
    updates: Int64
    rates: Float32
    row_bases: list[int]
    padded: list[int]
    size: int

    @property
    def width(self) -> int:
        return sum(self.dims)

    @property
    def longest_run(self) -> int:
        """Lookups of the most frequent row."""
        longest = 0
        for number in range(len(self.dims)):
            of_entry = self.values[self.offsets[number * self.size] : self.offsets[(number + 1) * self.size]]
            if len(of_entry):
                longest = max(longest, int(np.bincount(of_entry).max()))
        return longest

    def tables(self) -> torch.Tensor:
        """The lines of `row_updates`."""
        columns = [self.row_bases, self.padded, self.dims, self.updates[:, 2], self.updates[:, 3]]
        return torch.from_numpy(np.stack([np.asarray(column, np.int64) for column in columns], axis=1))


def random_case(
    *,
    dims: list[int],
    table_rows: list[int],
    size: int,
    longest_bag: int = 1,
    is_mean: bool = False,
    optimizers: list[int],
    skew: float | None = None,
    seed: int = 0,
) -> Case:
    """A call of one entry for each table. longest_bag 1: each bag has one id; else 0 to that many. skew: exponent of
    the Zipf distribution of the ids; None: uniform."""
    generator = np.random.default_rng(seed)
    count, padded = len(dims), [(dim + 3) // 4 * 4 for dim in dims]
    row_bases = np.cumsum([0, *(p * r for p, r in zip(padded, table_rows, strict=True))])
    floats = [{0: 0, 1: p, 2: 1}[code] for code, p in zip(optimizers, padded, strict=True)]
    state_bases = np.cumsum([0, *(f * r for f, r in zip(floats, table_rows, strict=True))])
    rows = generator.standard_normal(row_bases[-1]).astype(np.float32)
    for number, dim in enumerate(dims):
        rows[row_bases[number] : row_bases[number + 1]].reshape(table_rows[number], -1)[:, dim:] = 0
    lengths = np.ones(count * size, np.int64)
    if longest_bag > 1:
        lengths = generator.integers(0, longest_bag + 1, count * size)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.empty(offsets[-1], np.int64)
    for number, height in enumerate(table_rows):
        part = slice(offsets[number * size], offsets[(number + 1) * size])
        drawn = part.stop - part.start
        ids = generator.integers(0, height, drawn) if skew is None else generator.zipf(skew, drawn) - 1
        values[part] = np.minimum(ids, height - 1)
    entries = np.zeros((count, bag_kernels.ENTRY_FIELDS), np.int64)
    entries[:, bag_kernels.FIRST_BAG] = np.arange(count) * size
    entries[:, bag_kernels.BAGS] = size
    entries[:, bag_kernels.ROWS_OFFSET] = row_bases[:-1]
    entries[:, bag_kernels.DIM], entries[:, bag_kernels.PADDED_DIM] = dims, padded
    entries[:, bag_kernels.COLUMN] = np.cumsum([0, *dims[:-1]])
    entries[:, bag_kernels.STRIDE] = sum(dims)
    entries[:, bag_kernels.IS_MEAN] = int(is_mean)
    updates = np.zeros((count, bag_updates.UPDATE_FIELDS), np.int64)
    updates[:, 0], updates[:, 1] = np.arange(count), np.arange(count) + 1
    updates[:, 2], updates[:, 3] = state_bases[:-1], optimizers
    rates = np.tile(np.array([[0.05, 1e-8]], np.float32), (count, 1))
    state = generator.random(max(1, state_bases[-1])).astype(np.float32)
    bases = [int(base) for base in row_bases[:-1]]
    return Case(dims, rows, state, entries, values, offsets, updates, rates, bases, padded, size)
