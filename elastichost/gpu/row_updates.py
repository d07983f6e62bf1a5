"""The update of rows on a GPU: gradients of equal rows are summed in a fixed order, then each row is updated once.

The lookups of a batch are listed (`bag_kernels.list_lookups`) and sorted by embedding and row; the sort is stable, so
the order of equal rows is that of the batch. Then, in two levels, because one row of a skewed batch may have ten
thousand lookups:

1. `_update_chunks`: each program sums the segments (lookups of one row) within a chunk of lookups. A segment that lies
   within its chunk is complete: its row is updated. What a segment has in a chunk that it leaves, or that it came into,
   is written as a part: at most one part at the beginning (head) and one at the end (tail) of each chunk.
2. `_update_long_rows`: for each segment that leaves the chunk in which it begins, one program adds its parts and
   updates the row.

All orders of addition depend on the batch alone, so equal batches give equal bits. No atomic operation is used.

The optimizers are those of `elastichost.specs.RowOptimizerSpec`, with float32 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from elastichost.arena.rows.bag_updates import ADAGRAD, ROWWISE_ADAGRAD
from elastichost.gpu.bag_kernels import KEY_BITS, NO_LOOKUP, list_lookups
from elastichost.gpu.compiled import ceil_divide, kernel, tl

__all__ = ["BASE", "DIM", "OPTIMIZER", "PADDED_DIM", "STATE_BASE", "TABLE_FIELDS", "LookupLists", "update_rows"]

# Columns of `tables`, int64 [M, TABLE_FIELDS]: one line for each embedding.
BASE = 0  # elements of the rows before row 0
PADDED_DIM = 1  # elements from one row to the next
DIM = 2
STATE_BASE = 3  # elements of the state before that of row 0
OPTIMIZER = 4  # a code of `elastichost.arena.rows.bag_updates`
TABLE_FIELDS = 5

_FIELDS = tl.constexpr(TABLE_FIELDS)
_KEY_BITS = tl.constexpr(KEY_BITS)
_ROW_MASK = tl.constexpr((1 << KEY_BITS) - 1)
_NO_LOOKUP = tl.constexpr(NO_LOOKUP)
_ADAGRAD = tl.constexpr(ADAGRAD)
_ROWWISE = tl.constexpr(ROWWISE_ADAGRAD)
_PARTS = tl.constexpr(16)  # parts that level 2 adds at a time


@dataclass(frozen=True, slots=True)
class LookupLists:
    """The lists of a batch's lookups, with room for `capacity` of them, on one device.

    keys, places int64 [capacity]; scales float32 [capacity]; parts float32 [2 * chunks, width]: head and tail of each
    chunk.
    """

    keys: torch.Tensor
    places: torch.Tensor
    scales: torch.Tensor
    parts: torch.Tensor
    width: int

    @classmethod
    def allocate(cls, capacity: int, width: int, device: torch.device) -> LookupLists:
        chunks = ceil_divide(capacity, chunk_lookups(width))
        return cls(
            torch.empty(capacity, dtype=torch.int64, device=device),
            torch.empty(capacity, dtype=torch.int64, device=device),
            torch.empty(capacity, dtype=torch.float32, device=device),
            torch.empty((2 * chunks, width), dtype=torch.float32, device=device),
            width,
        )

    def fill(
        self,
        entries: torch.Tensor,
        embeddings: torch.Tensor,
        firsts: torch.Tensor,
        values: torch.Tensor,
        offsets: torch.Tensor,
        most_bags: int,
    ) -> None:
        """Lists the lookups of a call; the arguments are those of `bag_kernels.list_lookups`."""
        self.keys.fill_(NO_LOOKUP)
        lists = (self.keys, self.places, self.scales)
        list_lookups(entries, embeddings, firsts, values, offsets, lists, most_bags)


def chunk_lookups(width: int) -> int:
    """Lookups per chunk for rows of this kernel width."""
    return max(16, min(64, 2048 // width))


@kernel
def _combine(left, left_starts, right, right_starts):  # type: ignore[no-untyped-def]
    """One step of a segmented sum: a right side that begins a segment forgets the left one."""
    return tl.where(right_starts != 0, right, left + right), left_starts | right_starts


@kernel
def _apply(  # type: ignore[no-untyped-def]
    rows_address,
    state_address,
    tables,
    rates,
    key,
    gradient,
    is_updated,
    rate_scale,
    HAS_ADAGRAD: tl.constexpr,
    HAS_ROWWISE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Updates the rows of `key` [N] where `is_updated`, with the summed gradients [N, WIDTH]."""
    lane = tl.arange(0, WIDTH)
    embedding, row = key >> _KEY_BITS, key & _ROW_MASK
    table = tables + embedding * _FIELDS
    base = tl.load(table, mask=is_updated, other=0)
    padded = tl.load(table + 1, mask=is_updated, other=1)
    dim = tl.load(table + 2, mask=is_updated, other=0)
    state_base = tl.load(table + 3, mask=is_updated, other=0)
    optimizer = tl.load(table + 4, mask=is_updated, other=0)
    rate = tl.load(rates + embedding * 2, mask=is_updated, other=0.0) * rate_scale
    eps = tl.load(rates + embedding * 2 + 1, mask=is_updated, other=1.0)
    element = is_updated[:, None] & (lane[None, :] < dim[:, None])
    state = state_address.to(tl.pointer_type(tl.float32))
    factor = rate[:, None] + tl.zeros((1, WIDTH), tl.float32)
    if HAS_ROWWISE:
        of_row = is_updated & (optimizer == _ROWWISE)
        squares = tl.sum(tl.where(element, gradient * gradient, 0.0), axis=1) / padded.to(tl.float32)
        summed = tl.load(state + state_base + row, mask=of_row, other=0.0) + squares
        tl.store(state + state_base + row, summed, mask=of_row)
        factor = tl.where(of_row[:, None], (rate / (tl.sqrt_rn(summed) + eps))[:, None], factor)
    if HAS_ADAGRAD:
        of_element = element & (optimizer == _ADAGRAD)[:, None]
        place = state + state_base[:, None] + row[:, None] * padded[:, None] + lane[None, :]
        sums = tl.load(place, mask=of_element, other=0.0) + gradient * gradient
        tl.store(place, sums, mask=of_element)
        factor = tl.where(of_element, rate[:, None] / (tl.sqrt_rn(sums) + eps[:, None]), factor)
    at = rows_address.to(tl.pointer_type(tl.float32)) + base[:, None] + row[:, None] * padded[:, None] + lane[None, :]
    weight = tl.load(at, mask=element, other=0.0)
    tl.store(at, weight - factor * gradient, mask=element)


@kernel
def _update_chunks(  # type: ignore[no-untyped-def]
    rows_address,
    state_address,
    tables,
    rates,
    rate_scale,
    is_refused,
    keys,
    order,
    places,
    scales,
    gradients,
    parts,
    capacity,
    HAS_ADAGRAD: tl.constexpr,
    HAS_ROWWISE: tl.constexpr,
    LOOKUPS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    chunk = tl.program_id(0)
    first = chunk * LOOKUPS
    position, lane = first + tl.arange(0, LOOKUPS), tl.arange(0, WIDTH)
    in_list = position < capacity
    key = tl.load(keys + position, mask=in_list, other=_NO_LOOKUP)
    if tl.min(key, axis=0) != _NO_LOOKUP:
        before = tl.load(keys + position - 1, mask=in_list & (position > 0), other=-1)
        after = tl.load(keys + position + 1, mask=position + 1 < capacity, other=_NO_LOOKUP)
        is_lookup = key != _NO_LOOKUP
        lookup = tl.load(order + position, mask=is_lookup, other=0)
        place = tl.load(places + lookup, mask=is_lookup, other=0)
        scale = tl.load(scales + lookup, mask=is_lookup, other=0.0)
        dim = tl.load(tables + (key >> _KEY_BITS) * _FIELDS + 2, mask=is_lookup, other=0)
        used = is_lookup[:, None] & (lane[None, :] < dim[:, None])
        gradient = tl.load(gradients + place[:, None] + lane[None, :], mask=used, other=0.0).to(tl.float32)
        gradient = gradient * scale[:, None]
        starts = ((key != before).to(tl.int32))[:, None] + tl.zeros((1, WIDTH), tl.int32)
        summed, _ = tl.associative_scan((gradient, starts), 0, _combine)
        came_in = tl.load(keys + first - 1, mask=chunk > 0, other=-1)
        is_last = tl.arange(0, LOOKUPS) == LOOKUPS - 1
        ends = is_lookup & (key != after)
        is_head = is_lookup & (key == came_in)
        head = is_head & (ends | is_last)
        tail = is_lookup & ~is_head & is_last & ~ends
        tl.store(parts + 2 * chunk * WIDTH + lane, tl.sum(tl.where(head[:, None], summed, 0.0), axis=0))
        tl.store(parts + (2 * chunk + 1) * WIDTH + lane, tl.sum(tl.where(tail[:, None], summed, 0.0), axis=0))
        is_updated = ends & ~is_head & (tl.load(is_refused) == 0)
        _apply(
            rows_address,
            state_address,
            tables,
            rates,
            key,
            summed,
            is_updated,
            tl.load(rate_scale),
            HAS_ADAGRAD,
            HAS_ROWWISE,
            WIDTH,
        )


@kernel
def _update_long_rows(  # type: ignore[no-untyped-def]
    rows_address,
    state_address,
    tables,
    rates,
    rate_scale,
    is_refused,
    keys,
    parts,
    capacity,
    HAS_ADAGRAD: tl.constexpr,
    HAS_ROWWISE: tl.constexpr,
    LOOKUPS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    chunk = tl.program_id(0)
    lane, part = tl.arange(0, WIDTH), tl.arange(0, _PARTS)
    first, last = chunk * LOOKUPS, chunk * LOOKUPS + LOOKUPS - 1
    key = tl.load(keys + last, mask=last < capacity, other=_NO_LOOKUP)
    after = tl.load(keys + last + 1, mask=last + 1 < capacity, other=_NO_LOOKUP)
    came_in = tl.load(keys + first - 1, mask=chunk > 0, other=-1)
    if (key != _NO_LOOKUP) & (key == after) & (key != came_in):
        total = tl.load(parts + (2 * chunk + 1) * WIDTH + lane)
        following = chunk + 1
        found = _PARTS + 0
        while found == _PARTS:
            begin = (following + part) * LOOKUPS
            belongs = tl.load(keys + begin, mask=begin < capacity, other=_NO_LOOKUP) == key
            at = parts + 2 * (following + part)[:, None] * WIDTH + lane[None, :]
            total += tl.sum(tl.load(at, mask=belongs[:, None], other=0.0), axis=0)
            found = tl.sum(belongs.to(tl.int32), axis=0)
            following += _PARTS
        one = tl.arange(0, 1)
        is_updated = (one == 0) & (tl.load(is_refused) == 0)
        _apply(
            rows_address,
            state_address,
            tables,
            rates,
            key + tl.zeros((1,), tl.int64),
            total[None, :],
            is_updated,
            tl.load(rate_scale),
            HAS_ADAGRAD,
            HAS_ROWWISE,
            WIDTH,
        )


def update_rows(
    rows_address: int,
    state_address: int,
    tables: torch.Tensor,
    rates: torch.Tensor,
    rate_scale: torch.Tensor,
    is_refused: torch.Tensor,
    lists: LookupLists,
    gradients: torch.Tensor,
    optimizers: frozenset[int],
) -> None:
    """Updates each row of a batch once, with the sum of its gradients.

    rows_address, state_address: of float32 memory that the GPU can write. tables: int64 [M, TABLE_FIELDS]. rates:
    float32 [M, 2], learning rate and eps. rate_scale: float32 [1], the factor of all learning rates. is_refused:
    int32 [1]: if it is not 0, no row changes. lists: filled. gradients: float32 or bfloat16, in the
    layout of the output of `pool_bags`.
    optimizers: the codes that occur in `tables`.
    """
    keys, order = torch.sort(lists.keys, stable=True)
    capacity, width = len(keys), lists.width
    lookups = chunk_lookups(width)
    grid = (ceil_divide(capacity, lookups),)
    constants = {
        "HAS_ADAGRAD": ADAGRAD in optimizers,
        "HAS_ROWWISE": ROWWISE_ADAGRAD in optimizers,
        "LOOKUPS": lookups,
        "WIDTH": width,
    }
    places = (rows_address, state_address, tables, rates, rate_scale, is_refused, keys)
    _update_chunks[grid](*places, order, lists.places, lists.scales, gradients, lists.parts, capacity, **constants)
    _update_long_rows[grid](*places, lists.parts, capacity, **constants)
