"""Batches whose rows lie in two places: mapped in the arena, and pulled.

A value of such a batch is a row number of the arena, or `~position` among the pulled rows of its table, which is less
than 0. Bags may mix both. Entries are those of `bag_kernels`, for the mapped rows; `pulled_at` int64 [E] says where the
lines of each entry's embedding begin among what was pulled.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined, signed
from elastichost.arena.index.hashing import mix64
from elastichost.arena.rows.bag_kernels import (
    BAGS,
    COLUMN,
    DIM,
    FIRST_BAG,
    IS_MEAN,
    PADDED_DIM,
    ROWS_OFFSET,
    STRIDE,
    add_line,
    pool_bag,
    prefetch_row,
    rows_ahead,
)
from elastichost.arena.rows.lanes import Array, Lanes, add, lane, load, multiply, splat, store, zeros4, zeros16

__all__ = ["pool_placed_bags", "scatter_pulled", "split_by_place"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@inlined
def _prefetch(rows: Array, base: int, pulled: Float32, at: int, width: int, value: int, dim: int) -> None:
    """In both places, of which one is right: a branch here costs more than all the rest (measured)."""
    prefetch_row(rows, base + max(value, 0) * width, dim)
    prefetch_row(pulled, at + max(~value, 0) * width, dim)


@inlined
def _pool(
    rows: Array, base: int, pulled: Float32, at: int, width: int, values: Int64, start: int, stop: int, zeros: Lanes
) -> Lanes:
    """The sum over values[start:stop] of as many elements as there are zeros, from `base` in row 0 of the mapped rows,
    from `at` in the first pulled line."""
    pooled = zeros
    for k in range(start, stop):
        value = values[k]
        if value >= 0:
            pooled = add(pooled, load(rows, base + value * width, zeros))
        else:
            pooled = add(pooled, load(pulled, at + ~value * width, zeros))
    return pooled


@inlined
def _pool_mixed(
    rows: Array,
    base: int,
    pulled: Float32,
    pulled_base: int,
    width: int,
    values: Int64,
    start: int,
    stop: int,
    scale: np.float32,
    output: Float32,
    at: int,
    dim: int,
) -> None:
    """One bag of several ids, times scale, into output[at : at + dim]."""
    wide, narrow, unused = zeros16(), zeros4(), np.uint64(0)
    element = 0
    while element + 16 <= dim:
        pooled = _pool(rows, base + element, pulled, pulled_base + element, width, values, start, stop, wide)
        store(output, at + element, multiply(pooled, splat(scale, wide)), unused)
        element += 16
    while element < dim:
        pooled = _pool(rows, base + element, pulled, pulled_base + element, width, values, start, stop, narrow)
        part = multiply(pooled, splat(scale, narrow))
        if element + 4 <= dim:
            store(output, at + element, part, unused)
        else:  # the row is padded, the output is not
            for i in range(dim - element):
                output[at + element + i] = lane(part, i)
        element += 4


@compiled
def pool_placed_bags(
    rows: Array,
    pulled: Float32,
    entries: Int64,
    pulled_at: Int64,
    values: Int64,
    offsets: Int64,
    output: Float32,
) -> None:
    """Sums or means of rows of both places into a flat output; bags without an id give zeros.

    rows: float32 or bfloat16 (as uint16), flat; pulled float32, flat; entries int64 [E, ENTRY_FIELDS]; the others
    int64.
    """
    for e in range(len(entries)):
        first_bag, bags, base = entries[e, FIRST_BAG], entries[e, BAGS], entries[e, ROWS_OFFSET]
        dim, width, is_mean = entries[e, DIM], entries[e, PADDED_DIM], entries[e, IS_MEAN] != 0
        at, stride, pulled_base = entries[e, COLUMN], entries[e, STRIDE], pulled_at[e]
        ahead, last = rows_ahead(width), offsets[first_bag + bags] - 1
        for bag in range(first_bag, first_bag + bags):
            start, stop = offsets[bag], offsets[bag + 1]
            prefetch_row(output, at + ahead * stride, dim)
            if start == stop:
                for element in range(dim):
                    output[at + element] = np.float32(0.0)
            elif stop == start + 1:
                _prefetch(rows, base, pulled, pulled_base, width, values[min(start + ahead, last)], dim)
                if values[start] >= 0:
                    pool_bag(rows, base, width, values, start, start + 1, np.float32(1.0), output, at, dim)
                else:  # first + ~value * width, as the kernel multiplies
                    first = pulled_base - width
                    pool_bag(pulled, first, -width, values, start, start + 1, np.float32(1.0), output, at, dim)
            else:
                for k in range(start, stop):
                    _prefetch(rows, base, pulled, pulled_base, width, values[min(k + ahead, last)], dim)
                scale = np.float32(1.0) / np.float32(stop - start) if is_mean else np.float32(1.0)
                _pool_mixed(rows, base, pulled, pulled_base, width, values, start, stop, scale, output, at, dim)
            at += stride


@compiled
def scatter_pulled(
    sums: Float32, entries: Int64, pulled_at: Int64, values: Int64, offsets: Int64, gradient: Float32
) -> None:
    """Adds the gradient of every id whose row was pulled to the sums of that row, float32, laid out as what was pulled;
    those of mapped rows are `bag_updates.update_rows`' to learn."""
    for e in range(len(entries)):
        first_bag, base, dim = entries[e, FIRST_BAG], pulled_at[e], entries[e, DIM]
        width, is_mean = entries[e, PADDED_DIM], entries[e, IS_MEAN] != 0
        at, stride = entries[e, COLUMN], entries[e, STRIDE]
        for bag in range(first_bag, first_bag + entries[e, BAGS]):
            start, stop = offsets[bag], offsets[bag + 1]
            scale = np.float32(1.0) / np.float32(stop - start) if is_mean else np.float32(1.0)
            for k in range(start, stop):
                if values[k] < 0:
                    add_line(sums, base + ~values[k] * width, gradient, at, dim, scale)
            at += stride


@compiled
def split_by_place(
    keys: Int64,
    bounds: Int64,
    divisors: Int64,
    first_buckets: Int64,
    is_mapped: Bool,
    values: Int64,
    here_keys: Int64,
    here_at: Int64,
    here_bounds: Int64,
    there_keys: Int64,
    there_at: Int64,
    there_bounds: Int64,
) -> None:
    """Which ids of a batch have their rows in the mapped arena, and which elsewhere.

    keys int64 [n], those of feature f at bounds[f]:bounds[f + 1]; a fixed table's key is its row. The bucket of a key
    is key // divisors[f], or the upper bits of its hash, shifted by -divisors[f]; bucket 0 of the feature's table is
    is_mapped[first_buckets[f]]. Out: values[i] of mapped rows of fixed tables; the mapped keys of dynamic tables, which
    have to be looked up, and all keys that are elsewhere: int64 [n] each, with their positions in the batch, and bounds
    int64 [F + 1] by feature.
    """
    here = there = 0
    here_bounds[0] = there_bounds[0] = 0
    for f in range(len(divisors)):
        divisor, first = divisors[f], first_buckets[f]
        for i in range(bounds[f], bounds[f + 1]):
            key = keys[i]
            bucket = signed(mix64(key) >> np.uint64(-divisor)) if divisor < 0 else key // divisor
            if not is_mapped[first + bucket]:
                there_keys[there], there_at[there] = key, i
                there += 1
            elif divisor < 0:
                here_keys[here], here_at[here] = key, i
                here += 1
            else:
                values[i] = key
        here_bounds[f + 1], there_bounds[f + 1] = here, there
