"""The index of a dynamic table: one open-addressing hash table for each (table, bucket) in shared memory.

A slot is a pair (key int64, value int64). The value is
    0            the slot is empty
    > 0          `(row in bucket + 1) | tag << 40`; the tag is bits 32-54 of the key's `slot_hash`
    < 0          the id was sighted -value times and has no row yet
    TOMBSTONE    the id was evicted

Memory order. The PS that owns the bucket is the only writer. Readers in any process take no lock.

* Within a generation the key of a slot never changes after its value became other than 0. The writer stores the key,
  then the value with release order. A reader loads the value with acquire order, then the key. So a reader never sees
  an incomplete slot.
* To grow, the writer copies the slots to a new generation. Generations with an even number lie in the first half of the
  bucket's region, those with an odd number in the second half. The copy is complete before the header's GENERATION
  word, `generation << 32 | slots`, is published. The generation after that is written over the half of the old one,
  where a slow reader may still search. That reader loads GENERATION again after a hit, finds another word than before,
  and starts over.
* The tag is a second check: the tag of another key's value differs from the expected one, except by chance (2**-23).
* A freed page reads as zeros, so a reader finds a miss there. The caller sends every miss to the PS that owns the
  bucket.

Crash rule. Ids, weights and state of a row are written before its slot is published. NEXT_ROW is raised before the row
is used. INTENT names the one row whose slot and `seen` are about to change. `seen == 0` means that a row is free. So
a kill of the writer at any point leaves at most one row to repair (`upkeep.repair`), and every published key maps to a
complete row.

The home slot of a key is the low half of its hash as a fraction of the capacity. So any number of slots is possible,
and a copy to another capacity visits both generations in order: 10 ns a slot instead of 35 or more (5 million keys).
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

# Header words. Readers load only the first cache line; the words that the writer changes often are in the second one.
GENERATION = 0
FILLED = 1  # 1: the bucket's rows hold values, initialised or restored
ALLOCATED_ROWS = 2
NEXT_ROW = 8  # number of rows that were handed out so far
INTENT = 9  # 1 + the row whose slot is being published or evicted; 0: none
USED_SLOTS = 10
LIVE_ROWS = 11
HEAT = 12  # keys that workers have sent to the PS
EVICTED = 13  # rows that were evicted

TOMBSTONE = -(1 << 63)
MIN_CAPACITY = PAGE_BYTES // SLOT_BYTES  # slots of one page
# A key is entered at most MOST_PROBES slots from its home. If these slots are taken, the key gets none. With a random
# hash and a load a = 11/16 of 2**28 slots the longest distance is about ln(2**28) / (a - 1 - ln a) = 312 slots.
MOST_PROBES = 1024
FULL = -1 - (1 << 62)  # result of `find_slot`: there is no slot for the key
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
    """Number of slots of the generation in a GENERATION word; 0: the bucket has no index yet."""
    return generation_word & _CAPACITY_MASK


@compiled
def generation_first(generation_word: int, region_first: int, region_slots: int) -> int:
    """First slot of the generation in a GENERATION word, for a bucket whose region begins at slot `region_first`."""
    return region_first + ((generation_word >> CAPACITY_BITS) & 1) * (region_slots >> 1)


@compiled
def _home(mixed: np.uint64, capacity: int) -> int:
    return signed(((mixed & np.uint64(_LOW_HALF)) * np.uint64(capacity)) >> np.uint64(32))


@compiled
def tag_of(mixed: np.uint64) -> int:
    return signed((mixed >> np.uint64(32)) & np.uint64(_TAG_MASK)) << 40


@compiled
def find_slot(slots: Int64, first: int, capacity: int, key: int, mixed: np.uint64, most_probes: int) -> int:
    """The slot of a key in the generation of `capacity` slots from `first` on.

    If the key is not there: -1 - slot of the empty slot where it belongs. FULL: neither is among the first
    `most_probes` slots. mixed: `slot_hash` of the key.
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
    """The row of a key in its bucket, or -1. Any process may call this. mixed: `slot_hash` of the key."""
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
    """Writes the row numbers of keys (int64 [n]) into out (int64 [n]). Returns the number of misses.

    Row numbers are in the table's row space; -1 is a miss. `slots` and `control` are the whole files; first_header,
    first_slot and region_slots locate the table in them. The bucket of a key is `mix64(key) >> shift`. Any process may
    call this at any time.
    """
    misses = 0
    for start in range(0, len(keys), _BLOCK):
        stop = min(start + _BLOCK, len(keys))
        # Loading the home slots of a block of keys first lets their cache misses overlap.
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
    """Adds the number of keys at `positions` in each bucket to counts[bucket], int64 [buckets]."""
    for i in range(len(positions)):
        counts[signed(mix64(keys[positions[i]]) >> np.uint64(shift))] += 1


@compiled
def buckets_of(keys: Int64, shift: int) -> npt.NDArray[np.uint8]:
    """The bucket of each key, uint8 [n]."""
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
    """Counts one sighting of each key at `positions`; these keys have no row.

    Returns (number of keys that get a row now, number of keys without a free slot within MOST_PROBES, which are not
    entered). The positions of the former are written to the beginning of `admitted`.
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
            if value > 0:  # a repeated key that has got its row: `publish_rows` returns that row
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
    """Publishes rows (int64 [n], in the table's row space) under their keys. Returns how many were published.

    The ids, weights and state of the rows are written before. If a key already has a row, because it is repeated in
    `keys`, rows[i] becomes that row, and the given row stays free (`seen == 0`). If a key finds no slot within
    MOST_PROBES, rows[i] becomes -1.
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
