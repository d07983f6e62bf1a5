"""Kernels with which the writer maintains an index: growth, rebuilding, repair after a kill, eviction. The docstring of
`table` has the rules for memory order and crashes."""

from __future__ import annotations

import numpy as np

from elastichost.arena.compiled import compiled, signed, store_release
from elastichost.arena.index.hashing import mix64, slot_hash
from elastichost.arena.index.table import (
    FULL,
    GENERATION,
    INTENT,
    LIVE_ROWS,
    ROW_MASK,
    TOMBSTONE,
    Int64,
    UInt32,
    capacity_of,
    find_slot,
    generation_first,
    row_of,
    tag_of,
)
from elastichost.arena.layout import HEADER_WORDS

__all__ = [
    "GROWTH_CAPACITY",
    "GROWTH_COPIED",
    "GROWTH_FIRST",
    "GROWTH_PENDING",
    "GROWTH_USED",
    "GROWTH_WORDS",
    "copy_slots",
    "count_slots",
    "evict_rows",
    "fill_slots",
    "follow_slots",
    "mapped_only",
    "repair",
]

# Columns of `growths`, int64 [buckets, GROWTH_WORDS]: the state of each bucket's generation under construction.
GROWTH_FIRST = 0  # its first slot
GROWTH_CAPACITY = 1  # its slots; 0: no generation is under construction
GROWTH_COPIED = 2  # slots of the published generation that were copied into it
GROWTH_USED = 3  # slots used in it
GROWTH_PENDING = 4  # how many more ids without a row may be copied into it
GROWTH_WORDS = 5


@compiled
def count_slots(slots: Int64, first: int, count: int) -> tuple[int, int]:
    """(ids with a row, sighted ids without a row) among `count` slots from `first` on."""
    live = 0
    pending = 0
    for slot in range(first, first + count):
        value = slots[2 * slot + 1]
        if value > 0:
            live += 1
        elif value != 0 and value != TOMBSTONE:
            pending += 1
    return live, pending


@compiled
def copy_slots(
    slots: Int64, start: int, stop: int, new_first: int, new_capacity: int, index_key: int, most_pending: int
) -> tuple[int, int]:
    """Copies the slots [start, stop) into the generation of `new_capacity` slots from `new_first` on.

    Tombstones are not copied, and of the ids without a row at most `most_pending`. Returns (slots used in the new
    generation, ids without a row among them); (-1, row in the bucket) when there is no slot for an id with a row.
    """
    used = 0
    pending = 0
    for old in range(start, stop):
        value = slots[2 * old + 1]
        if value == 0 or value == TOMBSTONE or (value < 0 and pending >= most_pending):
            continue
        key = slots[2 * old]
        slot = find_slot(slots, new_first, new_capacity, key, slot_hash(mix64(key), index_key), new_capacity)
        if slot == FULL:
            if value > 0:
                return -1, (value & ROW_MASK) - 1
            continue
        if slot >= 0:
            continue
        slot = -1 - slot
        slots[2 * slot] = key
        store_release(slots, 2 * slot + 1, value)
        used += 1
        if value < 0:
            pending += 1
    return used, pending


@compiled
def follow_slots(
    slots: Int64,
    control: Int64,
    first_header: int,
    first_slot: int,
    region_slots: int,
    shift: int,
    index_key: int,
    growths: Int64,
    keys: Int64,
    positions: Int64,
) -> int:
    """Copies the present slots of the keys at `positions` from the published generations to those under construction.

    growths: int64 [buckets, GROWTH_WORDS]. A slot that `copy_slots` has not reached yet is skipped. Returns -1, or the
    position in `keys` of a key that has a row and finds no slot.
    """
    for i in range(len(positions)):
        key = keys[positions[i]]
        mixed = mix64(key)
        bucket = signed(mixed >> np.uint64(shift))
        capacity = growths[bucket, GROWTH_CAPACITY]
        if capacity == 0:
            continue
        word = control[(first_header + bucket) * HEADER_WORDS + GENERATION]
        first = generation_first(word, first_slot + bucket * region_slots, region_slots)
        mixed = slot_hash(mixed, index_key)
        slot = find_slot(slots, first, capacity_of(word), key, mixed, capacity_of(word))
        if slot < 0 or slot - first >= growths[bucket, GROWTH_COPIED]:
            continue
        value = slots[2 * slot + 1]
        slot = find_slot(slots, growths[bucket, GROWTH_FIRST], capacity, key, mixed, capacity)
        if slot < 0:
            if value == TOMBSTONE or (value < 0 and 2 * growths[bucket, GROWTH_USED] >= capacity):
                continue  # the slots are kept for rows: sightings may be dropped
            if slot == FULL:
                return signed(positions[i])
            slot = -1 - slot
            slots[2 * slot] = key
            growths[bucket, GROWTH_USED] += 1
        store_release(slots, 2 * slot + 1, value)
    return -1


@compiled
def fill_slots(slots: Int64, first: int, capacity: int, index_key: int, ids: Int64, seen: UInt32) -> int:
    """Enters every row of a bucket whose `seen` is not 0 into a zeroed generation. ids: int64 [n]; seen: uint32 [n].

    Returns the number of slots used, -1 - row for an id that has two rows, or FULL when there are more rows than slots.
    """
    used = 0
    for row in range(len(ids)):
        if seen[row] == 0:
            continue
        mixed = slot_hash(mix64(ids[row]), index_key)
        slot = find_slot(slots, first, capacity, ids[row], mixed, capacity)
        if slot == FULL:
            return FULL
        if slot >= 0:
            return -1 - row
        slot = -1 - slot
        slots[2 * slot] = ids[row]
        store_release(slots, 2 * slot + 1, (row + 1) | tag_of(mixed))
        used += 1
    return used


@compiled
def mapped_only(
    slots: Int64,
    control: Int64,
    header: int,
    region_first: int,
    region_slots: int,
    index_key: int,
    ids: Int64,
    seen: UInt32,
) -> int:
    """Sets `seen` (uint32 [n]) to 0 for each row that the index does not map ids[row] to. Returns how many.

    This removes late stamps: a worker with direct access that still used an evicted row may have stamped it after the
    row was freed.
    """
    cleared = 0
    for row in range(len(ids)):
        if seen[row] != 0:
            mixed = slot_hash(mix64(ids[row]), index_key)
            if row_of(slots, control, header, region_first, region_slots, ids[row], mixed) != row:
                seen[row] = 0
                cleared += 1
    return cleared


@compiled
def repair(
    slots: Int64,
    control: Int64,
    header: int,
    region_first: int,
    region_slots: int,
    index_key: int,
    ids: Int64,
    seen: UInt32,
    verify: bool,
    free: Int64,
) -> tuple[int, int]:
    """Repairs a bucket whose writer was killed. The successor calls this. It may be repeated.

    If INTENT names a row, its publication or eviction was interrupted: if the index does not map its id to the row, the
    row is made free. `verify` also clears late stamps (`mapped_only`). Then LIVE_ROWS is counted again, and the free
    rows are written to `free` (int64 [next_row], rows in the bucket). ids: int64 [next_row]; seen: uint32 [next_row].
    Returns (number of free rows, number of rows that were taken back).
    """
    taken_back = 0
    row = control[header + INTENT] - 1
    if row >= 0:
        mixed = slot_hash(mix64(ids[row]), index_key)
        if row_of(slots, control, header, region_first, region_slots, ids[row], mixed) != row:
            taken_back += 1
            seen[row] = 0
        store_release(control, header + INTENT, 0)
    if verify:
        taken_back += mapped_only(slots, control, header, region_first, region_slots, index_key, ids, seen)
    count = 0
    for candidate in range(len(ids)):
        if seen[candidate] == 0:
            free[count] = candidate
            count += 1
    control[header + LIVE_ROWS] = len(ids) - count
    return count, taken_back


@compiled
def evict_rows(
    slots: Int64,
    control: Int64,
    header: int,
    region_first: int,
    region_slots: int,
    index_key: int,
    ids: Int64,
    seen: UInt32,
    last_seen: int,
    freed: Int64,
) -> int:
    """Evicts the rows of a bucket with 0 < seen <= last_seen. ids: int64 [next_row]; seen: uint32 [next_row].

    Writes the evicted rows (rows in the bucket) to `freed` and returns how many. For each row INTENT is set, then the
    slot becomes a tombstone, then `seen` becomes 0, then INTENT is cleared.
    """
    word = control[header + GENERATION]
    first = generation_first(word, region_first, region_slots)
    capacity = capacity_of(word)
    count = 0
    for row in range(len(ids)):
        if seen[row] == 0 or seen[row] > last_seen:
            continue
        mixed = slot_hash(mix64(ids[row]), index_key)
        slot = find_slot(slots, first, capacity, ids[row], mixed, capacity)
        if slot < 0 or slots[2 * slot + 1] <= 0 or (slots[2 * slot + 1] & ROW_MASK) - 1 != row:
            seen[row] = 0  # a worker stamped the row after it was freed; it is on the list of free rows already
            continue
        store_release(control, header + INTENT, row + 1)
        store_release(slots, 2 * slot + 1, TOMBSTONE)
        seen[row] = 0
        control[header + LIVE_ROWS] -= 1
        store_release(control, header + INTENT, 0)
        freed[count] = row
        count += 1
    return count
