"""Kernels over the keys of a whole batch, table after table: distinct keys, their owners, rows of fixed tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined, signed
from elastichost.arena.index.hashing import mix64

__all__ = [
    "ALLOCATED_WORD",
    "BUCKET_ROWS",
    "HEAT_WORD",
    "IS_DYNAMIC",
    "ROW_SPACE",
    "SHIFT",
    "TABLE_FIELDS",
    "first_bad_row",
    "leave_missing_out",
    "split_by_owner",
    "take_keys",
    "unique_by_table",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt16 = npt.NDArray[np.uint16]

_GOLDEN = 0x9E3779B97F4A7C15

# Columns of `tables`, int64 [T, TABLE_FIELDS].
IS_DYNAMIC = 0
ROW_SPACE = 1
BUCKET_ROWS = 2
SHIFT = 3  # the bucket of a dynamic table's key is its hash, shifted right by SHIFT bits
HEAT_WORD = 4  # position of bucket 0's HEAT in the control words; each further bucket's is `stride` words later
ALLOCATED_WORD = 5  # the same for ALLOCATED_ROWS
TABLE_FIELDS = 6


@inlined
def _bits_for(ids: int) -> int:
    """Bits of a slot's number, so that `ids` ids take at most half of the slots."""
    bits = 1
    while 1 << bits < 2 * ids:
        bits += 1
    return bits


@compiled
def unique_by_table(
    keys: Int64,
    feature_bounds: Int64,
    features: Int64,
    first_features: Int64,
    slots: Int32,
    unique: Int64,
    bounds: Int64,
    positions: Int64,
) -> None:
    """Finds the distinct keys of every table, in order of first appearance, and the position of each key among them.

    In: keys int64 [n], of which feature f has feature_bounds[f]:feature_bounds[f + 1]; table t has the features
    features[first_features[t] : first_features[t + 1]]. slots int32 [power of two, at least 4 n] is workspace.
    Out: unique int64 [n], of which table t has bounds[t]:bounds[t + 1]; bounds int64 [T + 1]; positions int64 [n], the
    position of each key among the distinct keys of its table.
    """
    total = 0
    bounds[0] = 0
    for table in range(len(first_features) - 1):
        ids = 0
        for f in range(first_features[table], first_features[table + 1]):
            ids += feature_bounds[features[f] + 1] - feature_bounds[features[f]]
        bits = _bits_for(ids)
        mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
        slots[: mask + 1] = 0
        found = 0
        for f in range(first_features[table], first_features[table + 1]):
            for i in range(feature_bounds[features[f]], feature_bounds[features[f] + 1]):
                key = keys[i]
                # The key is folded, because its upper bits have little effect on the upper bits of the product.
                slot = signed(np.uint64(key ^ (key >> 32)) * np.uint64(_GOLDEN) >> shift)
                which = signed(slots[slot]) - 1
                while which >= 0 and unique[total + which] != key:
                    slot = (slot + 1) & mask
                    which = signed(slots[slot]) - 1
                if which < 0:
                    which = found
                    unique[total + found] = key
                    found += 1
                    slots[slot] = found
                positions[i] = which
        total += found
        bounds[table + 1] = total


@compiled
def leave_missing_out(
    rows: Int64, bounds: Int64, feature_bounds: Int64, features: Int64, first_features: Int64, positions: Int64
) -> None:
    """Sets positions[i] to -1 where the row of a key is below 0. rows: int64, of the keys in `unique`; the other
    arguments are those of `unique_by_table`."""
    for table in range(len(first_features) - 1):
        for f in range(first_features[table], first_features[table + 1]):
            for i in range(feature_bounds[features[f]], feature_bounds[features[f] + 1]):
                if rows[bounds[table] + positions[i]] < 0:
                    positions[i] = -1


@compiled
def split_by_owner(
    items: Int64,
    bounds: Int64,
    divisors: Int64,
    owners: UInt16,
    first_owners: Int64,
    part_of_server: Int64,
    part_of_item: Int64,
    counts: Int64,
    positions: Int64,
    sorted_items: Int64,
) -> int:
    """Splits items (keys or rows, table after table) by the PS that owns their bucket. Returns how many have an owner.

    In: items int64 [n], of which table t has bounds[t]:bounds[t + 1]. The bucket of an item is item // divisors[t]; if
    divisors[t] is negative, it is mix64(item) >> -divisors[t]. A negative row has no owner. The owner of the bucket is
    owners[first_owners[t] + bucket], and its part is part_of_server[owner]. part_of_item int64 [n] is workspace.
    Out: counts int64 [parts, T], which the caller sets to zero before; positions int64 [n] of part 0's items, then of
    part 1's and so on, in each part table after table; sorted_items int64 [n], the items at these positions.
    """
    tables = len(divisors)
    for t in range(tables):
        divisor = divisors[t]
        for i in range(bounds[t], bounds[t + 1]):
            item = items[i]
            part_of_item[i] = -1
            if divisor < 0:
                bucket = signed(mix64(item) >> np.uint64(-divisor))
            elif item >= 0:
                bucket = item // divisor
            else:
                continue
            part = part_of_server[owners[first_owners[t] + bucket]]
            part_of_item[i] = part
            counts[part, t] += 1
    places = np.empty((len(counts), tables), np.int64)
    total = 0
    for part in range(len(counts)):
        for t in range(tables):
            places[part, t] = total
            total += counts[part, t]
    for t in range(tables):
        for i in range(bounds[t], bounds[t + 1]):
            if part_of_item[i] >= 0:
                place = places[part_of_item[i], t]
                places[part_of_item[i], t] = place + 1
                positions[place] = i
                sorted_items[place] = items[i]
    return total


@compiled
def take_keys(keys: Int64, bounds: Int64, tables: Int64, control: Int64, stride: int, rows: Int64) -> int:
    """Adds every key to the HEAT of its bucket, and writes the rows of fixed tables, where the key is the row.

    keys, rows: int64 [n], table after table; tables: int64 [T, TABLE_FIELDS]; control: int64, the bucket headers.
    Returns the position of the first key outside its fixed table, or -1 if there is none.
    """
    for t in range(len(tables)):
        row_space, bucket_rows, heat = tables[t, ROW_SPACE], tables[t, BUCKET_ROWS], tables[t, HEAT_WORD]
        is_dynamic, shift = tables[t, IS_DYNAMIC] != 0, np.uint64(tables[t, SHIFT])
        for i in range(bounds[t], bounds[t + 1]):
            key = keys[i]
            if is_dynamic:
                control[heat + signed(mix64(key) >> shift) * stride] += 1
            elif key >= 0 and key < row_space:
                control[heat + key // bucket_rows * stride] += 1
                rows[i] = key
            else:
                return i
    return -1


@compiled
def first_bad_row(rows: Int64, bounds: Int64, tables: Int64, control: Int64, stride: int) -> int:
    """Position of the first row that is outside its table's row space or not allocated in its bucket; -1 if none is.

    rows: int64 [n], table after table. The number of rows allocated in a dynamic bucket is
    control[tables[t, ALLOCATED_WORD] + bucket * stride]; in a fixed table all rows are allocated.
    """
    for t in range(len(tables)):
        row_space, bucket_rows, allocated = tables[t, ROW_SPACE], tables[t, BUCKET_ROWS], tables[t, ALLOCATED_WORD]
        is_dynamic = tables[t, IS_DYNAMIC] != 0
        for i in range(bounds[t], bounds[t + 1]):
            row = rows[i]
            if row < 0 or row >= row_space:
                return i
            if is_dynamic:
                bucket = row // bucket_rows
                if row - bucket * bucket_rows >= control[allocated + bucket * stride]:
                    return i
    return -1
