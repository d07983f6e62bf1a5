"""The update of rows on a GPU: gradients of equal rows are summed in a fixed order, then each row is updated once.

The lookups of a batch are listed (`bag_kernels.list_lookups`) and sorted by embedding and row; the sort is stable, so
the order of equal rows is that of the batch. The lookups of one row are then a segment of the sorted list. One row of a
skewed batch may have ten thousand lookups, so segments are summed in two levels:

1. `_sum_chunks`: each program sums what the segments have in one chunk of the list. The sum goes to the line of the
   lookup with which the segment begins. What a chunk has of a segment that began in an earlier one is its *part*.
2. `_add_parts`: for each segment that leaves the chunk in which it begins, one program adds the parts of the following
   chunks to the segment's line.

`_apply` then updates the row of each segment. All orders of addition depend on the batch alone, so equal batches give
equal bits. No atomic operation is used.

The optimizers are those of `elastichost.specs.RowOptimizerSpec`, with float32 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from elastichost.arena.rows.bag_updates import ADAGRAD, ROWWISE_ADAGRAD
from elastichost.gpu.bag_kernels import list_lookups
from elastichost.gpu.compiled import IS_INTERPRETED, ceil_divide, kernel, tl

__all__ = [
    "BASE",
    "DIM",
    "OPTIMIZER",
    "PADDED_DIM",
    "STATE_BASE",
    "TABLE_FIELDS",
    "KeyFormat",
    "LookupLists",
    "chunk_lookups",
    "update_rows",
]

# Columns of `tables`, int64 [M, TABLE_FIELDS]: one line for each embedding.
BASE = 0  # elements of the rows before row 0
PADDED_DIM = 1  # elements from one row to the next
DIM = 2
STATE_BASE = 3  # elements of the state before that of row 0
OPTIMIZER = 4  # a code of `elastichost.arena.rows.bag_updates`
TABLE_FIELDS = 5

_FIELDS = tl.constexpr(TABLE_FIELDS)
_ADAGRAD = tl.constexpr(ADAGRAD)
_ROWWISE = tl.constexpr(ROWWISE_ADAGRAD)
_PARTS = tl.constexpr(16)  # parts that level 2 adds at a time


@dataclass(frozen=True, slots=True)
class KeyFormat:
    """How a lookup's key is written: the number of the embedding, then `row_bits` bits of the row number. With int32 a
    sort takes half as long. none: the key of a place that holds no lookup, which is sorted behind all others."""

    dtype: torch.dtype
    row_bits: int
    none: int

    @classmethod
    def of(cls, embeddings: int, most_rows: int) -> KeyFormat:
        """The shortest format for so many embeddings with up to `most_rows` rows each."""
        row_bits = max(1, (most_rows - 1).bit_length())
        is_short = embeddings << row_bits < (1 << 31) - 1
        return cls(torch.int32 if is_short else torch.int64, row_bits, (1 << (31 if is_short else 62)) - 1)


@dataclass(frozen=True, slots=True)
class LookupLists:
    """The lists of a batch's lookups, with room for `capacity` of them, on one device.

    keys int32 or int64 [capacity]; places int64 [capacity]; scales float32 [capacity]; sums float32 [capacity, width]:
    at the first lookup of each row, the sum of its gradients. parts float32 [chunks, width].
    """

    keys: torch.Tensor
    places: torch.Tensor
    scales: torch.Tensor
    sums: torch.Tensor
    parts: torch.Tensor
    width: int
    format: KeyFormat

    @classmethod
    def allocate(cls, capacity: int, width: int, device: torch.device, key_format: KeyFormat) -> LookupLists:
        chunks = ceil_divide(capacity, chunk_lookups(width))
        return cls(
            torch.empty(capacity, dtype=key_format.dtype, device=device),
            torch.empty(capacity, dtype=torch.int64, device=device),
            torch.empty(capacity, dtype=torch.float32, device=device),
            torch.empty((capacity, width), dtype=torch.float32, device=device),
            torch.empty((chunks, width), dtype=torch.float32, device=device),
            width,
            key_format,
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
        self.keys.fill_(self.format.none)
        lists = (self.keys, self.places, self.scales)
        list_lookups(entries, embeddings, firsts, values, offsets, lists, most_bags, self.format.row_bits)


def chunk_lookups(width: int) -> int:
    """Lookups per chunk for rows of this kernel width."""
    return max(16, min(64, 2048 // width))


@kernel
def _sum_chunks(  # type: ignore[no-untyped-def]
    tables,
    keys,
    order,
    places,
    scales,
    gradients,
    sums,
    parts,
    capacity,
    LOOKUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROW_BITS: tl.constexpr,
    NO_LOOKUP: tl.constexpr,
    IS_EXACT: tl.constexpr,
):
    chunk = tl.program_id(0)
    first = chunk * LOOKUPS
    position, lane = first + tl.arange(0, LOOKUPS), tl.arange(0, WIDTH)
    key = tl.load(keys + position, mask=position < capacity, other=NO_LOOKUP)
    before = tl.load(keys + position - 1, mask=(position > 0) & (position < capacity), other=-1)
    is_lookup = key != NO_LOOKUP
    lookup = tl.load(order + position, mask=is_lookup, other=0)
    place = tl.load(places + lookup, mask=is_lookup, other=0)
    scale = tl.load(scales + lookup, mask=is_lookup, other=0.0)
    dim = tl.load(tables + (key >> ROW_BITS).to(tl.int64) * _FIELDS + 2, mask=is_lookup, other=0)
    used = is_lookup[:, None] & (lane[None, :] < dim[:, None])
    gradient = tl.load(gradients + place[:, None] + lane[None, :], mask=used, other=0.0).to(tl.float32)
    # for each lookup the sum from it to the end of its segment, as a product with zeros and ones
    follows = (key[:, None] == key[None, :]) & (position[:, None] <= position[None, :])
    if IS_EXACT:  # sums of bfloat16 gradients: the products are exact, and are added as float32
        summed = tl.dot(follows.to(tl.bfloat16), gradient.to(tl.bfloat16))
    else:
        summed = tl.dot(follows.to(tl.float32), gradient * scale[:, None], input_precision="ieee")
    starts = is_lookup & (key != before)
    at = position.to(tl.int64)[:, None] * WIDTH + lane[None, :]
    tl.store(sums + at, summed, mask=starts[:, None] & (lane[None, :] < WIDTH))
    came_in = is_lookup & ~starts & (position == first)
    at = chunk.to(tl.int64) * WIDTH + (position - first)[:, None] * WIDTH + lane[None, :]
    tl.store(parts + at, summed, mask=came_in[:, None] & (lane[None, :] < WIDTH))


@kernel
def _add_parts(  # type: ignore[no-untyped-def]
    keys, sums, parts, capacity, LOOKUPS: tl.constexpr, WIDTH: tl.constexpr, NO_LOOKUP: tl.constexpr
):
    chunk = tl.program_id(0)
    lane, part = tl.arange(0, WIDTH), tl.arange(0, _PARTS)
    first, last = chunk * LOOKUPS, chunk * LOOKUPS + LOOKUPS - 1
    key = tl.load(keys + last, mask=last < capacity, other=NO_LOOKUP)
    after = tl.load(keys + last + 1, mask=last + 1 < capacity, other=NO_LOOKUP)
    came_in = tl.load(keys + first - 1, mask=chunk > 0, other=-1)
    if (key != NO_LOOKUP) & (key == after) & (key != came_in):
        position = first + tl.arange(0, LOOKUPS)
        begin = tl.min(tl.where(tl.load(keys + position) == key, position, last), axis=0).to(tl.int64)
        total = tl.load(sums + begin * WIDTH + lane)
        following = chunk + 1
        found = _PARTS + 0
        while found == _PARTS:
            start = (following + part) * LOOKUPS
            belongs = tl.load(keys + start, mask=start < capacity, other=NO_LOOKUP) == key
            at = parts + (following + part)[:, None].to(tl.int64) * WIDTH + lane[None, :]
            total += tl.sum(tl.load(at, mask=belongs[:, None], other=0.0), axis=0)
            found = tl.sum(belongs.to(tl.int32), axis=0)
            following += _PARTS
        tl.store(sums + begin * WIDTH + lane, total)


@kernel
def _apply(  # type: ignore[no-untyped-def]
    rows_address,
    state_address,
    tables,
    rates,
    rate_scale,
    is_refused,
    keys,
    sums,
    capacity,
    embeddings,
    HAS_ADAGRAD: tl.constexpr,
    HAS_ROWWISE: tl.constexpr,
    LOOKUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROW_BITS: tl.constexpr,
    NO_LOOKUP: tl.constexpr,
):
    if tl.load(is_refused) == 0:
        position, lane = tl.program_id(0) * LOOKUPS + tl.arange(0, LOOKUPS), tl.arange(0, WIDTH)
        key = tl.load(keys + position, mask=position < capacity, other=NO_LOOKUP)
        before = tl.load(keys + position - 1, mask=(position > 0) & (position < capacity), other=-1)
        is_updated = (key != NO_LOOKUP) & (key != before)
        embedding = tl.minimum(key >> ROW_BITS, embeddings - 1).to(tl.int64)
        row = (key & ((1 << ROW_BITS) - 1)).to(tl.int64)
        table = tables + embedding * _FIELDS
        base, padded, dim = tl.load(table), tl.load(table + 1), tl.load(table + 2)
        state_base, optimizer = tl.load(table + 3), tl.load(table + 4)
        rate = tl.load(rates + embedding * 2) * tl.load(rate_scale)
        eps = tl.load(rates + embedding * 2 + 1)
        element = is_updated[:, None] & (lane[None, :] < dim[:, None])
        summed = sums + position.to(tl.int64)[:, None] * WIDTH + lane[None, :]
        gradient = tl.load(summed, mask=element, other=0.0)
        state = state_address.to(tl.pointer_type(tl.float32))
        factor = rate[:, None] + tl.zeros((1, WIDTH), tl.float32)
        if HAS_ROWWISE:
            of_row = is_updated & (optimizer == _ROWWISE)
            squares = tl.sum(gradient * gradient, axis=1) / padded.to(tl.float32)
            total = tl.load(state + state_base + row, mask=of_row, other=0.0) + squares
            tl.store(state + state_base + row, total, mask=of_row)
            factor = tl.where(of_row[:, None], (rate / (tl.sqrt_rn(total) + eps))[:, None], factor)
        if HAS_ADAGRAD:
            of_element = element & (optimizer == _ADAGRAD)[:, None]
            place = state + state_base[:, None] + row[:, None] * padded[:, None] + lane[None, :]
            totals = tl.load(place, mask=of_element, other=0.0) + gradient * gradient
            tl.store(place, totals, mask=of_element)
            factor = tl.where(of_element, rate[:, None] / (tl.sqrt_rn(totals) + eps[:, None]), factor)
        rows = rows_address.to(tl.pointer_type(tl.float32))
        at = rows + base[:, None] + row[:, None] * padded[:, None] + lane[None, :]
        weight = tl.load(at, mask=element, other=0.0)
        tl.store(at, weight - factor * gradient, mask=element)


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
    *,
    has_means: bool = True,
) -> None:
    """Updates each row of a batch once, with the sum of its gradients.

    rows_address, state_address: of float32 memory that the GPU can write. tables: int64 [M, TABLE_FIELDS]. rates:
    float32 [M, 2], learning rate and eps. rate_scale: float32 [1], the factor of all learning rates. is_refused:
    int32 [1]: if it is not 0, no row changes. lists: filled. gradients: float32 or bfloat16, in the
    layout of the output of `pool_bags`.
    optimizers: the codes that occur in `tables`. has_means: whether a bag
    may be a mean; without means all factors are 1.
    """
    keys, order = torch.sort(lists.keys, stable=True)
    capacity, width = len(keys), lists.width
    lookups = chunk_lookups(width)
    grid = (ceil_divide(capacity, lookups),)
    sizes = {"LOOKUPS": lookups, "WIDTH": width, "NO_LOOKUP": lists.format.none}
    bits = {"ROW_BITS": lists.format.row_bits}
    is_exact = gradients.dtype == torch.bfloat16 and not has_means and not IS_INTERPRETED
    where = (tables, keys, order, lists.places, lists.scales)
    _sum_chunks[grid](*where, gradients, lists.sums, lists.parts, capacity, **sizes, **bits, IS_EXACT=is_exact)
    _add_parts[grid](keys, lists.sums, lists.parts, capacity, **sizes)
    settings = (rows_address, state_address, tables, rates, rate_scale, is_refused)
    which = {"HAS_ADAGRAD": ADAGRAD in optimizers, "HAS_ROWWISE": ROWWISE_ADAGRAD in optimizers}
    _apply[grid](*settings, keys, lists.sums, capacity, len(tables), **which, **sizes, **bits)
