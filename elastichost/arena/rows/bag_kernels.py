"""Pooled lookup in flat rows, and the sums of gradients for rows that were pulled from a PS.

**Entries**, int64 [E, ENTRY_FIELDS], describe a call: one line for each (embedding, feature). The constants below name
the columns. The bags of an entry are delimited by `offsets[first_bag : first_bag + bags + 1]`, which are positions in
`values`; these are row numbers. The result of bag b begins at `output[column + b * stride]`. For pooled lookup the
stride is a whole line of the output. For a sequence it is one vector, and each bag has one id. Gradients have the
layout of the output.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined, prefetch
from elastichost.arena.rows.lanes import (
    Array,
    Lanes,
    add,
    lane,
    load,
    multiply,
    splat,
    store,
    store_nearest,
    zeros4,
    zeros16,
)

__all__ = [
    "BAGS",
    "COLUMN",
    "DIM",
    "ENTRY_FIELDS",
    "FIRST_BAG",
    "IS_MEAN",
    "PADDED_DIM",
    "ROWS_OFFSET",
    "STRIDE",
    "add_line",
    "pool_bag",
    "pool_bags",
    "prefetch_row",
    "rows_ahead",
    "scatter_gradients",
]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

FIRST_BAG = 0  # position of the first bag in `offsets`
BAGS = 1
ROWS_OFFSET = 2  # elements of the flat rows before the embedding's row 0
DIM = 3
PADDED_DIM = 4  # elements from one row to the next, a multiple of four; those from DIM on are zeros
COLUMN = 5  # where bag 0 begins in the flat output
STRIDE = 6  # elements from one bag to the next in the output
IS_MEAN = 7  # 1: mean pooling, 0: sum
ENTRY_FIELDS = 8

_FLOATS_PER_LINE = 16  # float32 in a cache line of 64 bytes
_LINES_AHEAD = 24  # cache lines prefetched in advance: times were measured and are equal from 16 to 32


@inlined
def rows_ahead(width: int) -> int:
    """How many rows of `width` floats to prefetch in advance."""
    return max(2, _LINES_AHEAD * _FLOATS_PER_LINE // max(width, _FLOATS_PER_LINE))


@inlined
def prefetch_row(array: Array, position: int, elements: int) -> None:
    """Prefetches the cache lines of a row of `elements` elements."""
    prefetch(array, position)
    for element in range(_FLOATS_PER_LINE, elements, _FLOATS_PER_LINE):
        prefetch(array, position + element)


@inlined
def _pool(rows: Array, first: int, width: int, values: Int64, start: int, stop: int, like: Lanes) -> Lanes:
    """The sum of the rows values[start:stop], for as many elements from `first` on as `like` has lanes."""
    pooled = load(rows, first + values[start] * width, like)
    for k in range(start + 1, stop):
        pooled = add(pooled, load(rows, first + values[k] * width, like))
    return pooled


@inlined
def _pool_two(
    rows: Array, first: int, width: int, values: Int64, start: int, stop: int, scale: Lanes, output: Array, at: int
) -> None:
    """Writes the scaled sum of the rows values[start:stop] for 32 elements from `first` on. One pass over the ids for
    both vectors: finding a row takes as long as adding a part of it."""
    like = zeros16()
    position = first + values[start] * width
    low, high = load(rows, position, like), load(rows, position + 16, like)
    for k in range(start + 1, stop):
        position = first + values[k] * width
        low, high = add(low, load(rows, position, like)), add(high, load(rows, position + 16, like))
    store_nearest(output, at, multiply(low, scale))
    store_nearest(output, at + 16, multiply(high, scale))


@inlined
def pool_bag(
    rows: Array,
    base: int,
    width: int,
    values: Int64,
    start: int,
    stop: int,
    scale: np.float32,
    output: Array,
    at: int,
    dim: int,
) -> None:
    """Writes the sum of one bag, which is not empty, times `scale` to output[at : at + dim]."""
    wide, narrow = zeros16(), zeros4()
    element = 0
    while element + 32 <= dim:
        _pool_two(rows, base + element, width, values, start, stop, splat(scale, wide), output, at + element)
        element += 32
    while element + 16 <= dim:
        pooled = _pool(rows, base + element, width, values, start, stop, wide)
        store_nearest(output, at + element, multiply(pooled, splat(scale, wide)))
        element += 16
    while element < dim:
        part = multiply(_pool(rows, base + element, width, values, start, stop, narrow), splat(scale, narrow))
        if element + 4 <= dim:
            store_nearest(output, at + element, part)
        else:  # the row is padded, the output is not
            for i in range(dim - element):
                output[at + element + i] = lane(part, i)
        element += 4


@compiled
def pool_bags(rows: Array, entries: Int64, values: Int64, offsets: Int64, output: Array) -> None:
    """Writes the sums or means of rows to a flat output: float32, or bfloat16 if all dims are multiples of four. A bag
    without ids gives zeros.

    rows: float32, or bfloat16 as uint16, flat. entries: int64 [E, ENTRY_FIELDS]. values: int64 [ids]. offsets: int64.
    """
    for e in range(len(entries)):
        first_bag, bags, base = entries[e, FIRST_BAG], entries[e, BAGS], entries[e, ROWS_OFFSET]
        dim, width, is_mean = entries[e, DIM], entries[e, PADDED_DIM], entries[e, IS_MEAN] != 0
        at, stride = entries[e, COLUMN], entries[e, STRIDE]
        ahead, last = rows_ahead(width), offsets[first_bag + bags] - 1
        for bag in range(first_bag, first_bag + bags):
            start, stop = offsets[bag], offsets[bag + 1]
            # Consecutive bags are a line of the output apart, too far for the prefetcher of the processor.
            prefetch_row(output, at + ahead * stride, dim)
            if stop == start + 1:  # the usual case in most data sets; the compiler can specialise it to one row
                prefetch_row(rows, base + values[min(start + ahead, last)] * width, dim)
                pool_bag(rows, base, width, values, start, start + 1, np.float32(1.0), output, at, dim)
            elif stop == start:
                for element in range(dim):
                    output[at + element] = np.float32(0.0)
            else:
                for k in range(start, stop):
                    prefetch_row(rows, base + values[min(k + ahead, last)] * width, dim)
                scale = np.float32(1.0) / np.float32(stop - start) if is_mean else np.float32(1.0)
                pool_bag(rows, base, width, values, start, stop, scale, output, at, dim)
            at += stride


@inlined
def add_line(line: Float32, to: int, gradient: Float32, position: int, dim: int, scale: np.float32) -> None:
    """line[to : to + dim] += scale * gradient[position : position + dim]."""
    wide, unused = zeros16(), np.uint64(0)
    element = 0
    while element + 16 <= dim:
        part = multiply(load(gradient, position + element, wide), splat(scale, wide))
        store(line, to + element, add(load(line, to + element, wide), part), unused)
        element += 16
    while element < dim:
        line[to + element] += scale * gradient[position + element]
        element += 1


@compiled
def scatter_gradients(sums: Float32, entries: Int64, values: Int64, offsets: Int64, gradient: Float32) -> None:
    """Adds the gradient of every id to the sum of its row. sums: float32, in the layout of the flat rows that
    `pool_bags` read; the other arguments as there."""
    for e in range(len(entries)):
        first_bag, base, dim = entries[e, FIRST_BAG], entries[e, ROWS_OFFSET], entries[e, DIM]
        width, is_mean = entries[e, PADDED_DIM], entries[e, IS_MEAN] != 0
        at, stride = entries[e, COLUMN], entries[e, STRIDE]
        for bag in range(first_bag, first_bag + entries[e, BAGS]):
            start, stop = offsets[bag], offsets[bag + 1]
            scale = np.float32(1.0) / np.float32(stop - start) if is_mean else np.float32(1.0)
            for k in range(start, stop):
                add_line(sums, base + values[k] * width, gradient, at, dim, scale)
            at += stride
