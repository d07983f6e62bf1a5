"""Kernels for batches whose rows lie in two places: some in the mapped arena, the others pulled from a PS.

A value of such a batch is a row number of the arena, or `~position`, which is less than 0, for a position among the
pulled rows of its table. A bag may have values of both kinds. Entries are those of `bag_kernels` and describe the
mapped rows. `pulled_at`, int64 [E], is where the lines of each entry's embedding begin in the pulled rows.
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
    """Prefetches in both places, although the row is in one: a branch here costs more than the rest of the kernel
    (measured)."""
    prefetch_row(rows, base + max(value, 0) * width, dim)
    prefetch_row(pulled, at + max(~value, 0) * width, dim)


@inlined
def _pool(
    rows: Array, base: int, pulled: Float32, at: int, width: int, values: Int64, start: int, stop: int, zeros: Lanes
) -> Lanes:
    """The sum of the rows values[start:stop], for as many elements as `zeros` has lanes. The elements begin at `base`
    in mapped row 0, and at `at` in the first pulled line."""
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
    """Writes the sum of one bag of several ids, times `scale`, to output[at : at + dim]."""
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
    """Writes the sums or means of rows of both places to a flat output (float32). A bag without ids gives zeros.

    rows: float32, or bfloat16 as uint16, flat. pulled: float32, flat. entries: int64 [E, ENTRY_FIELDS]. pulled_at:
    int64 [E]. values: int64 [ids]. offsets: int64.
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
                else:  # `pool_bag` reads at first + value * -width, which is pulled_base + ~value * width
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
    """Adds the gradient of every id whose row was pulled to the sum of that row. sums: float32, in the layout of the
    pulled rows. `bag_updates.update_rows` handles the gradients of mapped rows."""
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
    """Splits the ids of a batch into those whose rows are in the mapped arena and those whose rows are elsewhere.

    In: keys int64 [n], of which feature f has bounds[f]:bounds[f + 1]; the key of a fixed table is its row. The bucket
    of a key is key // divisors[f]; if divisors[f] is negative, it is mix64(key) >> -divisors[f]. Bucket b of the
    feature's table is mapped if is_mapped[first_buckets[f] + b].
    Out: values[i], the rows of mapped keys of fixed tables. here_keys, here_at: the mapped keys of dynamic tables, to
    be looked up by the caller, and their positions in the batch. there_keys, there_at: all keys that are elsewhere, and
    their positions. All int64 [n]. here_bounds, there_bounds: int64 [F + 1], by feature.
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
