"""Key -> row of dynamic tables: one open-addressing index per (table, bucket) in shared memory.

A slot is (key int64, value int64). Values: 0 empty; > 0 `(row in bucket + 1) | tag << 40`, tag being bits 32-54 of
the key's `slot_hash`; < 0 an id sighted -value times but not admitted yet; TOMBSTONE an evicted id.

One writer, the PS that owns the bucket; readers in any process, without locks:

* Within a generation a slot's key never changes once its value is not 0. The writer stores the key, then the value
  with release order; a reader loads the value with acquire order, then the key. So it never sees a half-made slot.
* Growth copies into another generation: the even ones begin with the first half of the bucket's region, the odd ones
  with the second. The header's generation word `generation << 32 | slots` is published after the copy. The next but
  one is then written over a generation that a slow reader may still search. That reader began with an older
  generation word; it loads the word again after the hit, sees the difference and starts over.
* The tag is the second line of defence: a value belonging to another key differs from the expected tag.
* Slots given back to the system read as zeros, i.e. as a miss, and every miss is asked of the owner.

Crash rule: ids, weights and state of a row are written before its slot is published, NEXT_ROW is raised before the
row is used, and INTENT names the one row whose slot and `seen` are about to change. `seen == 0` means free. So a
writer killed anywhere leaves at most that one row to `index_upkeep.repair`, and every published key maps to a
complete row.

A key's home is its hash's low half, as a fraction of the capacity. So any number of slots will do, and a copy to
another capacity walks through both generations in order: 10 ns a slot instead of 35 or more (5 million keys).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, load_acquire, signed, store_release
from elastichost.arena.index.hashing import mix64, slot_hash
from elastichost.arena.layout import HEADER_WORDS, SLOT_BYTES
from elastichost.host.machine import PAGE_BYTES

__all__ = [
    "ALLOCATED_ROWS",
    "CAPACITY_BITS",
    "EVICTED",
    "FILLED",
    "FULL",
    "GENERATION",
    "HEAT",
    "INTENT",
    "LIVE_ROWS",
    "MIN_CAPACITY",
    "MOST_PROBES",
    "NEXT_ROW",
    "ROW_MASK",
    "TOMBSTONE",
    "USED_SLOTS",
    "buckets_of",
    "capacity_of",
    "count_by_bucket",
    "find_slot",
    "generation_first",
    "lookup_dynamic",
    "publish_rows",
    "row_of",
    "sight",
    "tag_of",
]

Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]

# Header words. Readers load only the first cache line; the writer's busy words have the second one.
GENERATION = 0
FILLED = 1  # the bucket's rows hold values: initialised or restored
ALLOCATED_ROWS = 2
NEXT_ROW = 8  # rows ever handed out
INTENT = 9  # row + 1 whose slot is being published or taken back
USED_SLOTS = 10
LIVE_ROWS = 11
HEAT = 12  # keys asked of the PS
EVICTED = 13  # rows dropped

TOMBSTONE = -(1 << 63)
MIN_CAPACITY = PAGE_BYTES // SLOT_BYTES  # slots: one page
# A key is entered at most so many slots from its home; where there is no place, it goes without one. With a random
# hash the longest way at 11/16 of 2**28 slots is about ln(2**28) / (a - 1 - ln a) = 312 slots, for a = 11/16.
MOST_PROBES = 1024
FULL = -1 - (1 << 62)  # of `find_slot`: there is no place for the key
CAPACITY_BITS = 32
ROW_MASK = (1 << 40) - 1
_CAPACITY_MASK = (1 << CAPACITY_BITS) - 1
_LOW_HALF = (1 << 32) - 1
_TAG_MASK = (1 << 23) - 1
_WORDS = HEADER_WORDS
_RETRIES = 8
_BLOCK = 32


@compiled
def capacity_of(generation_word: int) -> int:
    """Slots of the generation a header word names; 0: the bucket has no index yet."""
    return generation_word & _CAPACITY_MASK


@compiled
def generation_first(generation_word: int, region_first: int, region_slots: int) -> int:
    """First slot of the generation a header word names, of a bucket whose region begins at `region_first`."""
    return region_first + ((generation_word >> CAPACITY_BITS) & 1) * (region_slots >> 1)


@compiled
def _home(mixed: np.uint64, capacity: int) -> int:
    return signed(((mixed & np.uint64(_LOW_HALF)) * np.uint64(capacity)) >> np.uint64(32))


@compiled
def tag_of(mixed: np.uint64) -> int:
    return signed((mixed >> np.uint64(32)) & np.uint64(_TAG_MASK)) << 40


@compiled
def find_slot(slots: Int64, first: int, capacity: int, key: int, mixed: np.uint64, most_probes: int) -> int:
    """Slot of the key in the generation of `capacity` slots from `first` on, or -1 - slot of the empty place where it
    would go; FULL when neither is among the first `most_probes`.
    """
    place = _home(mixed, capacity)
    for _ in range(min(capacity, most_probes)):
        slot = first + place
        value = load_acquire(slots, 2 * slot + 1)
        if value == 0:
            return -1 - slot
        if load_acquire(slots, 2 * slot) == key:
            return slot
        place += 1
        if place == capacity:
            place = 0
    return FULL


@compiled
def row_of(
    slots: Int64, control: Int64, header: int, region_first: int, region_slots: int, key: int, mixed: np.uint64
) -> int:
    """Row in the bucket, or -1. Safe for readers in other processes."""
    for _ in range(_RETRIES):
        word = load_acquire(control, header + GENERATION)
        if word == 0:
            return -1
        first = generation_first(word, region_first, region_slots)
        slot = find_slot(slots, first, capacity_of(word), key, mixed, capacity_of(word))
        if slot < 0:
            return -1
        value = load_acquire(slots, 2 * slot + 1)
        if load_acquire(control, header + GENERATION) != word:
            continue
        if value <= 0 or value & ~ROW_MASK != tag_of(mixed):
            return -1
        return (value & ROW_MASK) - 1
    return -1


@compiled
def lookup_dynamic(
    slots: Int64,
    control: Int64,
    first_header: int,
    first_slot: int,
    region_slots: int,
    bucket_rows: int,
    shift: int,
    index_key: int,
    keys: Int64,
    out: Int64,
) -> int:
    """Row numbers in the table's row space, or -1, of int64 keys [n] into int64 out [n]. Returns the misses.

    `slots` and `control` are whole files; the next three say where the table lies; `mix64(key) >> shift` is its
    bucket. Any process may call this at any time.
    """
    misses = 0
    for start in range(0, len(keys), _BLOCK):
        stop = min(start + _BLOCK, len(keys))
        # Touching a block's first slots before they are needed lets their cache misses overlap.
        for i in range(start, stop):
            mixed = mix64(keys[i])
            bucket = signed(mixed >> np.uint64(shift))
            word = load_acquire(control, (first_header + bucket) * _WORDS + GENERATION)
            if word != 0:
                first = generation_first(word, first_slot + bucket * region_slots, region_slots)
                home = _home(slot_hash(mixed, index_key), capacity_of(word))
                load_acquire(slots, 2 * (first + home) + 1)
        for i in range(start, stop):
            mixed = mix64(keys[i])
            bucket = signed(mixed >> np.uint64(shift))
            header, region_first = (first_header + bucket) * _WORDS, first_slot + bucket * region_slots
            mixed = slot_hash(mixed, index_key)
            row = row_of(slots, control, header, region_first, region_slots, keys[i], mixed)
            if row < 0:
                out[i] = -1
                misses += 1
            else:
                out[i] = bucket * bucket_rows + row
    return misses


@compiled
def count_by_bucket(keys: Int64, positions: Int64, shift: int, counts: Int64) -> None:
    """Adds to counts[bucket] the keys at these positions."""
    for i in range(len(positions)):
        counts[signed(mix64(keys[positions[i]]) >> np.uint64(shift))] += 1


@compiled
def buckets_of(keys: Int64, shift: int) -> npt.NDArray[np.uint8]:
    """Bucket of each key, uint8 [n]."""
    out = np.empty(len(keys), dtype=np.uint8)
    for i in range(len(keys)):
        out[i] = np.uint8(mix64(keys[i]) >> np.uint64(shift))
    return out


@compiled
def sight(
    slots: Int64,
    control: Int64,
    first_header: int,
    first_slot: int,
    region_slots: int,
    shift: int,
    index_key: int,
    admit_after: int,
    keys: Int64,
    positions: Int64,
    admitted: Int64,
) -> tuple[int, int]:
    """Counts one sighting of each key at `positions` (keys without a row). Returns how many are to get a row now, whose
    positions are the first of `admitted`, and how many found no place within MOST_PROBES and stay unknown.
    """
    count = refused = 0
    for i in range(len(positions)):
        key = keys[positions[i]]
        mixed = mix64(key)
        bucket = signed(mixed >> np.uint64(shift))
        header = (first_header + bucket) * _WORDS
        word = control[header + GENERATION]
        first = generation_first(word, first_slot + bucket * region_slots, region_slots)
        mixed = slot_hash(mixed, index_key)
        slot = find_slot(slots, first, capacity_of(word), key, mixed, MOST_PROBES)
        if slot == FULL:
            refused += 1
            continue
        sightings = 1
        if slot >= 0:
            value = slots[2 * slot + 1]
            if value > 0:  # a repeated key
                admitted[count] = positions[i]
                count += 1
                continue
            if value != TOMBSTONE:
                sightings = 1 - value
        if sightings >= admit_after:
            admitted[count] = positions[i]
            count += 1
        elif slot >= 0:
            store_release(slots, 2 * slot + 1, -sightings)
        else:
            slot = -1 - slot
            control[header + USED_SLOTS] += 1
            slots[2 * slot] = key
            store_release(slots, 2 * slot + 1, -sightings)
    return count, refused


@compiled
def publish_rows(
    slots: Int64,
    control: Int64,
    first_header: int,
    first_slot: int,
    region_slots: int,
    bucket_rows: int,
    shift: int,
    index_key: int,
    keys: Int64,
    rows: Int64,
    seen: UInt32,
    seen_value: int,
) -> int:
    """Makes complete rows (int64 [n], table's row space; ids, weights and state written) visible under their keys.

    A key that has a row already (a repeated key) keeps it: rows[i] becomes that one, and the row given in vain stays
    free (`seen == 0`). A key without a place within MOST_PROBES gets none: rows[i] becomes -1. Returns how many were
    published.
    """
    published = 0
    for i in range(len(keys)):
        mixed = mix64(keys[i])
        bucket = signed(mixed >> np.uint64(shift))
        header = (first_header + bucket) * _WORDS
        word = control[header + GENERATION]
        first = generation_first(word, first_slot + bucket * region_slots, region_slots)
        row = rows[i] - bucket * bucket_rows
        mixed = slot_hash(mixed, index_key)
        slot = find_slot(slots, first, capacity_of(word), keys[i], mixed, MOST_PROBES)
        if slot == FULL:
            rows[i] = -1
            continue
        if slot >= 0 and slots[2 * slot + 1] > 0:
            rows[i] = bucket * bucket_rows + (slots[2 * slot + 1] & ROW_MASK) - 1
            continue
        store_release(control, header + INTENT, row + 1)
        seen[rows[i]] = seen_value
        if slot < 0:
            slot = -1 - slot
            control[header + USED_SLOTS] += 1
            slots[2 * slot] = keys[i]
        store_release(slots, 2 * slot + 1, (row + 1) | tag_of(mixed))
        control[header + LIVE_ROWS] += 1
        store_release(control, header + INTENT, 0)
        published += 1
    return published
