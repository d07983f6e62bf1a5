"""Pooled lookup on a GPU, and the list of a batch's lookups that the update of rows begins with.

Both read the entries that `elastichost.arena.rows.bag_kernels` defines, from device memory: int64 [E, ENTRY_FIELDS],
one line for each (embedding, feature). The rows are float32, at an address that the GPU can read: memory of the GPU, or
registered memory of the host.

**Lookups** are the (bag, id) pairs of a call, numbered entry after entry. An id that two entries read is two lookups.
"""

from __future__ import annotations

from typing import Any

import torch

from elastichost.arena.rows.bag_kernels import ENTRY_FIELDS
from elastichost.gpu.compiled import ceil_divide, kernel, tl

__all__ = ["bags_per_program", "list_lookups", "pool_bags"]

_BAGS_PER_PROGRAM = 64
_FIELDS = tl.constexpr(ENTRY_FIELDS)


@kernel
def _pool_bags(  # type: ignore[no-untyped-def]  # arguments are tensors and Triton's constants
    rows_address, entries, values, offsets, output, BAGS: tl.constexpr, WIDTH: tl.constexpr
):
    entry = entries + tl.program_id(1) * _FIELDS
    first_bag, bags, base = tl.load(entry), tl.load(entry + 1), tl.load(entry + 2)
    dim, padded, column = tl.load(entry + 3), tl.load(entry + 4), tl.load(entry + 5)
    stride, is_mean = tl.load(entry + 6), tl.load(entry + 7)
    rows = rows_address.to(tl.pointer_type(tl.float32)) + base
    bag = tl.program_id(0) * BAGS + tl.arange(0, BAGS)
    lane = tl.arange(0, WIDTH)
    in_batch, in_row = bag < bags, lane < dim
    start = tl.load(offsets + first_bag + bag, mask=in_batch, other=0)
    stop = tl.load(offsets + first_bag + bag + 1, mask=in_batch, other=0)
    longest = tl.max(stop - start, axis=0)
    total = tl.zeros((BAGS, WIDTH), tl.float32)
    k = 0
    while k < longest:
        has_id = start + k < stop
        row = tl.load(values + start + k, mask=has_id, other=0).to(tl.int64)
        at = row[:, None] * padded + lane[None, :]
        total += tl.load(rows + at, mask=has_id[:, None] & in_row[None, :], other=0.0)
        k += 1
    count = tl.where(is_mean != 0, tl.maximum(stop - start, 1), 1)
    total = total * (1.0 / count.to(tl.float32))[:, None]
    at = column + bag[:, None] * stride + lane[None, :]
    tl.store(output + at, total.to(output.dtype.element_ty), mask=in_batch[:, None] & in_row[None, :])


@kernel
def _list_lookups(  # type: ignore[no-untyped-def]
    entries, embeddings, firsts, values, offsets, keys, places, scales, BAGS: tl.constexpr, ROW_BITS: tl.constexpr
):
    number = tl.program_id(1)
    entry = entries + number * _FIELDS
    first_bag, bags = tl.load(entry), tl.load(entry + 1)
    column, stride, is_mean = tl.load(entry + 5), tl.load(entry + 6), tl.load(entry + 7)
    embedding = tl.load(embeddings + number)
    bag = tl.program_id(0) * BAGS + tl.arange(0, BAGS)
    in_batch = bag < bags
    start = tl.load(offsets + first_bag + bag, mask=in_batch, other=0)
    stop = tl.load(offsets + first_bag + bag + 1, mask=in_batch, other=0)
    lookup = tl.load(firsts + number) + start - tl.load(offsets + first_bag)
    count = tl.where(is_mean != 0, tl.maximum(stop - start, 1), 1)
    scale, place = 1.0 / count.to(tl.float32), column + bag * stride
    longest = tl.max(stop - start, axis=0)
    k = 0
    while k < longest:
        has_id = start + k < stop
        row = tl.load(values + start + k, mask=has_id, other=0).to(tl.int64)
        key = (embedding << ROW_BITS) + row
        tl.store(keys + lookup + k, key.to(keys.dtype.element_ty), mask=has_id)
        tl.store(places + lookup + k, place, mask=has_id)
        tl.store(scales + lookup + k, scale, mask=has_id)
        k += 1


def pool_bags(
    rows_address: int,
    entries: torch.Tensor,
    values: torch.Tensor,
    offsets: torch.Tensor,
    output: torch.Tensor,
    most_bags: int,
    width: int,
) -> None:
    """Writes the sums or means of rows to a flat output, float32 or bfloat16. A bag without ids gives zeros. The ids of
    a bag are added in their order.

    rows_address: of float32 rows. entries: int64 [E, ENTRY_FIELDS]. values: int32 or int64 [ids], row numbers. offsets:
    int32 or int64. most_bags: at least the number of bags of every entry. width: one of KERNEL_WIDTHS, at least every
    dim.
    """
    grid = (ceil_divide(most_bags, bags_per_program(width)), len(entries))
    _pool_bags[grid](rows_address, entries, values, offsets, output, BAGS=bags_per_program(width), WIDTH=width)


def list_lookups(
    entries: torch.Tensor,
    embeddings: torch.Tensor,
    firsts: torch.Tensor,
    values: torch.Tensor,
    offsets: torch.Tensor,
    lists: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    most_bags: int,
    row_bits: int,
) -> None:
    """Writes one line for each lookup to the three lists: its key int32 or int64, where its gradient begins int64, and
    the factor of its gradient float32. The key is the number of the embedding, then `row_bits` bits of the row number.

    embeddings: int64 [E], number of the embedding of each entry. firsts: int64 [E], number of each entry's first
    lookup. Lines without a lookup stay as they are: the caller fills the keys before.
    """
    grid = (ceil_divide(most_bags, _BAGS_PER_PROGRAM), len(entries))
    arguments: tuple[Any, ...] = (entries, embeddings, firsts, values, offsets, *lists)
    _list_lookups[grid](*arguments, BAGS=_BAGS_PER_PROGRAM, ROW_BITS=row_bits)


def bags_per_program(width: int) -> int:
    """Bags per program, so that a program has about 1,024 elements."""
    return max(8, 1024 // width)
