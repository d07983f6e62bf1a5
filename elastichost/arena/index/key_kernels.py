"""Keys of a whole batch, table after table: the distinct ones, who owns them, the rows of those that are rows."""

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
SHIFT = 3  # a dynamic table's bucket: the key's hash, shifted right by so many bits
HEAT_WORD = 4  # of bucket 0, in the control words; those of the others follow `stride` words apart
ALLOCATED_WORD = 5
TABLE_FIELDS = 6


@inlined
def _bits_for(ids: int) -> int:
    """Of a slot's number, so that no more than half the slots are taken."""
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
    """The distinct keys of every table, in order of first appearance, and where each key stands among them.

    keys int64 [n], those of feature f at feature_bounds[f]:feature_bounds[f + 1]; table t has the features
    features[first_features[t] : first_features[t + 1]]. Out: unique int64 [n], of which table t gets
    bounds[t]:bounds[t + 1], bounds int64 [T + 1], positions int64 [n] among its table's unique keys.
    slots int32 [power of two, at least 4 n]: workspace.
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
                # Folded, because the product's upper bits see little of the key's.
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
    """positions[i] = -1 where a key's row is below 0; arguments as of `unique_by_table`, rows int64 like `unique`."""
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
    """Cuts items (keys or rows, table after table) by the PS that owns their bucket; gives how many have an owner.

    The bucket is item // divisors[t], or the upper bits of the key's hash, shifted by -divisors[t]; negative rows are
    nobody's. Its owner is owners[first_owners[t] + bucket], whose part is part_of_server[owner].
    Out: counts int64 [parts, T], zeros before; positions int64 [n]: of part 0's items, then part 1's and so on, each
    table after table; sorted_items int64 [n]: the items there. part_of_item int64 [n]: workspace.
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
    """Counts every key for the heat of its bucket, and gives the rows of fixed tables, where a key is its row.

    keys, rows int64 [n], table after table; tables int64 [T, TABLE_FIELDS]; control int64: headers of the buckets.
    Returns the position of the first key outside its fixed table, -1 when all are fine.
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
    """Position of the first row outside its table's row space or not allocated in its bucket; -1: all are fine.

    rows int64 [n], table after table; control[ALLOCATED_WORD + bucket * stride] holds the rows allocated in a dynamic
    bucket; all rows of a fixed table are.
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
