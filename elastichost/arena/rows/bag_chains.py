"""The distinct rows of a batch, and the sum of the gradients of each one.

A small hash table finds the distinct rows. The ids of a row are linked in a chain, so nothing is copied before the
gradients of the row are summed. The memory that is accessed fits into the caches nearest to the processor.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined, signed
from elastichost.arena.rows.bag_kernels import BAGS, COLUMN, FIRST_BAG, IS_MEAN, STRIDE
from elastichost.arena.rows.lanes import Array, Lanes, add, load, multiply, splat, store, zeros4, zeros16

__all__ = ["CHUNK_ROWS", "GRADIENT_AT", "UpdateWorkspace", "chain_ids", "sum_chain"]

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

CHUNK_ROWS = 16  # rows that are updated together: one value of each row makes a vector of 16

# Columns of `chain`, which has one line for each id.
_PREVIOUS_ID, GRADIENT_AT = 0, 1
_GOLDEN = 0x9E3779B97F4A7C15


class UpdateWorkspace:
    """Temporary arrays of an update. They grow as needed and are kept between calls.

    slots int32 [power of two]: 1 + number of a distinct row; 0: empty. distinct int64 [ids]: the distinct rows.
    last_ids int64 [ids]: the last id of each distinct row. chain int64 [ids, 2]: the previous id of the same row (-1:
    none), and where the gradient of the id begins. scales float32 [ids]: factors of the gradients. lines float32
    [16 * widest]: the summed gradients of 16 rows.
    """

    def __init__(self, widest: int) -> None:
        self.lines = np.zeros(CHUNK_ROWS * widest, np.float32)
        self.scales = np.empty(0, np.float32)
        self.reserve(1)

    def reserve(self, ids: int) -> None:
        """Makes room for embeddings with up to `ids` ids in a batch."""
        if ids <= len(self.scales):
            return
        self.slots = np.zeros(1 << (2 * ids).bit_length(), np.int32)
        self.distinct = np.empty(ids, np.int64)
        self.last_ids = np.empty(ids, np.int64)
        self.chain = np.empty((ids, 2), np.int64)
        self.scales = np.empty(ids, np.float32)

    def arrays(self) -> tuple[Int32, Int64, Int64, Int64, Float32, Float32]:
        """slots, distinct, last_ids, chain, scales and lines, in the order in which the kernels take them."""
        return (self.slots, self.distinct, self.last_ids, self.chain, self.scales, self.lines)


@inlined
def _bits_for(entries: Int64, first: int, stop: int, offsets: Int64) -> int:
    """Bits of a slot's number, so that the ids of entries[first:stop] take at most half of the slots."""
    ids = 0
    for e in range(first, stop):
        ids += offsets[entries[e, FIRST_BAG] + entries[e, BAGS]] - offsets[entries[e, FIRST_BAG]]
    bits = 1
    while 1 << bits < 2 * ids:
        bits += 1
    return bits


@compiled
def chain_ids(
    entries: Int64,
    first: int,
    stop: int,
    values: Int64,
    offsets: Int64,
    slots: Int32,
    distinct: Int64,
    last_ids: Int64,
    chain: Int64,
    scales: Float32,
) -> int:
    """Fills the workspace from the ids of entries[first:stop] of one embedding. Returns the number of distinct rows.

    Values less than 0 are pulled rows (`place_kernels`) and are skipped.
    """
    bits = _bits_for(entries, first, stop, offsets)
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    slots[: mask + 1] = 0
    found = number = 0
    for e in range(first, stop):
        first_bag, is_mean = entries[e, FIRST_BAG], entries[e, IS_MEAN] != 0
        at, stride = entries[e, COLUMN], entries[e, STRIDE]
        for bag in range(first_bag, first_bag + entries[e, BAGS]):
            begin, end = offsets[bag], offsets[bag + 1]
            scale = np.float32(1.0) / np.float32(end - begin) if is_mean else np.float32(1.0)
            for k in range(begin, end):
                row, previous = values[k], -1
                if row < 0:
                    continue
                slot = signed(np.uint64(row) * np.uint64(_GOLDEN) >> shift)
                which = signed(slots[slot]) - 1
                while which >= 0 and distinct[which] != row:
                    slot = (slot + 1) & mask
                    which = signed(slots[slot]) - 1
                if which < 0:
                    which = found
                    found += 1
                    slots[slot] = found
                    distinct[which] = row
                else:
                    previous = last_ids[which]
                last_ids[which] = number
                chain[number, _PREVIOUS_ID], chain[number, GRADIENT_AT] = previous, at
                scales[number] = scale
                number += 1
            at += stride
    return found


@inlined
def _chain_sum(k: int, chain: Int64, scales: Float32, gradient: Array, element: int, like: Lanes) -> Lanes:
    """The scaled sum of the gradients of a chain that ends in id k, for as many elements as `like` has lanes."""
    summed = multiply(load(gradient, chain[k, GRADIENT_AT] + element, like), splat(scales[k], like))
    k = chain[k, _PREVIOUS_ID]
    while k >= 0:
        part = multiply(load(gradient, chain[k, GRADIENT_AT] + element, like), splat(scales[k], like))
        summed = add(summed, part)
        k = chain[k, _PREVIOUS_ID]
    return summed


@inlined
def _sum_four(k: int, chain: Int64, scales: Float32, gradient: Array, element: int, lines: Float32, to: int) -> None:
    """Writes the scaled sum of the gradients of a chain that ends in id k, for 64 elements from `element` on. One walk
    along the chain for four vectors: the next id is known only when this one was read, and rows of hot ids have chains
    of hundreds."""
    like, unused = zeros16(), np.uint64(0)
    at, scale = chain[k, GRADIENT_AT] + element, splat(scales[k], like)
    first = multiply(load(gradient, at, like), scale)
    second = multiply(load(gradient, at + 16, like), scale)
    third = multiply(load(gradient, at + 32, like), scale)
    fourth = multiply(load(gradient, at + 48, like), scale)
    k = chain[k, _PREVIOUS_ID]
    while k >= 0:
        at, scale = chain[k, GRADIENT_AT] + element, splat(scales[k], like)
        first = add(first, multiply(load(gradient, at, like), scale))
        second = add(second, multiply(load(gradient, at + 16, like), scale))
        third = add(third, multiply(load(gradient, at + 32, like), scale))
        fourth = add(fourth, multiply(load(gradient, at + 48, like), scale))
        k = chain[k, _PREVIOUS_ID]
    store(lines, to, first, unused)
    store(lines, to + 16, second, unused)
    store(lines, to + 32, third, unused)
    store(lines, to + 48, fourth, unused)


@inlined
def _sum_two(k: int, chain: Int64, scales: Float32, gradient: Array, element: int, lines: Float32, to: int) -> None:
    """As `_sum_four`, for 32 elements."""
    like, unused = zeros16(), np.uint64(0)
    at, scale = chain[k, GRADIENT_AT] + element, splat(scales[k], like)
    first = multiply(load(gradient, at, like), scale)
    second = multiply(load(gradient, at + 16, like), scale)
    k = chain[k, _PREVIOUS_ID]
    while k >= 0:
        at, scale = chain[k, GRADIENT_AT] + element, splat(scales[k], like)
        first = add(first, multiply(load(gradient, at, like), scale))
        second = add(second, multiply(load(gradient, at + 16, like), scale))
        k = chain[k, _PREVIOUS_ID]
    store(lines, to, first, unused)
    store(lines, to + 16, second, unused)


@inlined
def sum_chain(
    last: int, chain: Int64, scales: Float32, gradient: Array, dim: int, width: int, lines: Float32, to: int
) -> None:
    """Writes the summed gradients of the chain that ends in id `last` to lines[to : to + width]; zeros from dim on."""
    wide, narrow, unused = zeros16(), zeros4(), np.uint64(0)
    element = 0
    while element + 64 <= dim:
        _sum_four(last, chain, scales, gradient, element, lines, to + element)
        element += 64
    while element + 32 <= dim:
        _sum_two(last, chain, scales, gradient, element, lines, to + element)
        element += 32
    while element + 16 <= dim:
        store(lines, to + element, _chain_sum(last, chain, scales, gradient, element, wide), unused)
        element += 16
    while element + 4 <= dim:
        store(lines, to + element, _chain_sum(last, chain, scales, gradient, element, narrow), unused)
        element += 4
    while element < width:  # the elements after the last multiple of four, and the padding
        summed = np.float32(0.0)
        k = last if element < dim else -1
        while k >= 0:
            summed += gradient[chain[k, GRADIENT_AT] + element] * scales[k]
            k = chain[k, _PREVIOUS_ID]
        lines[to + element] = summed
        element += 1
