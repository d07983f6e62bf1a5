"""Growth of a dynamic table's index in small steps, so that no call waits for a whole copy.

While the published generation of a bucket's index serves readers, the writer fills a larger one. Each `make_room`
allocates and copies a share of it, sized so that the new generation is complete before the published one is full.
`follow` repeats the changes of slots that were copied before. Only the writer has the state of the construction. After
a kill, the successor finds the published generation complete, and frees the pages of the unfinished one.

Why a new generation begins half full: it is a trade of memory for probes. Measured with 5 million keys: ns for a key
that is in the index (hit), ns for one that is not (miss), and bytes of index for each key.

    load     0.25   0.33   0.50   0.60   0.70   0.80
    hit        35     35     41     46     54     61
    miss       37     42     63     77     89    116
    bytes      64     48     32     27     23     20

With ids as skewed as real ones (Zipf) the load makes no difference. Above a load of 0.5 each further byte saved costs
more time than the one before, and misses, which are sent to the PS in any case, soon cost a quarter of a microsecond
a sample.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.arena.index import table as index
from elastichost.arena.index import upkeep as index_upkeep
from elastichost.arena.index.upkeep import (
    GROWTH_CAPACITY,
    GROWTH_COPIED,
    GROWTH_FIRST,
    GROWTH_PENDING,
    GROWTH_USED,
    GROWTH_WORDS,
)
from elastichost.arena.layout import HEADER_WORDS, SLOT_BYTES
from elastichost.arena.memory_board import PATIENCE_S
from elastichost.arena.words import announce
from elastichost.errors import ArenaError, ArenaFullError, MemoryBudgetError
from elastichost.host.machine import PAGE_BYTES

__all__ = ["GRACES", "IndexWriter"]

Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]

GRACES = 2  # confirmations after which no reader can use a freed row or an old generation

# Used slots of a published generation in sixteenths: growth begins at 9 to 10, and is complete before 11.
_BEGIN, _FULL, _PARTS = 9, 11, 16
_SLOTS_PER_KEY = 2  # slots for each key of a new generation when its construction begins
_STEP_SLOTS = 8192  # slots that one call allocates or copies at the least: about 40 us
_SAMPLE_SLOTS = 65_536
_PAGE_SLOTS = PAGE_BYTES // SLOT_BYTES
_MOST_GROWTHS = 3  # in one call: the one under construction, one for the incoming ids, one without sightings


class IndexWriter:
    """Writer of the index of one dynamic table's owned buckets."""

    def __init__(self, arena: Arena, table: int) -> None:
        self._arena, self._table = arena, table
        self._name = arena.model.tables[table].name
        self._place = arena.index_place(table)
        buckets = arena.layout.bucket_count(table)
        first_word = self._place.header_word(0)
        self._headers = arena.control[first_word : first_word + buckets * HEADER_WORDS].reshape(buckets, HEADER_WORDS)
        # Buckets fill at the same rate: with one limit for all of them they would all grow at the same time.
        self._begin = _BEGIN * buckets + np.arange(buckets)
        self._growths = np.zeros((buckets, GROWTH_WORDS), np.int64)
        self._allocated = np.zeros(buckets, np.int64)  # slots of the generation under construction
        self._trim_after: dict[int, int] = {}  # owned bucket -> graces until the pages of its old generations are freed

    # --- ownership --------------------------------------------------------------------------------------------

    def open(self, bucket: int) -> None:
        """Takes over the bucket's published generation. All other pages of its region are freed after the graces."""
        self._growths[bucket] = 0
        self._trim_after[bucket] = GRACES

    def close(self, bucket: int) -> None:
        """Ends the ownership of the bucket, and drops its generation under construction."""
        self._growths[bucket] = 0
        del self._trim_after[bucket]

    @property
    def needs_grace(self) -> bool:
        return any(self._trim_after.values())

    def confirm_grace(self) -> None:
        """See `DynamicTable.confirm_grace`."""
        for bucket, left in self._trim_after.items():
            if left == 0:
                continue
            self._trim_after[bucket] = left - 1
            # A generation under construction lies in these pages; its publication starts the next wait for a trim.
            if left == 1 and not self._growths[bucket, GROWTH_CAPACITY]:
                self._trim(bucket)

    def _trim(self, bucket: int) -> None:
        """Frees the pages of the bucket's region that do not belong to the published generation."""
        word, region_slots = int(self._headers[bucket, index.GENERATION]), self._place.region_slots
        half, region_first = region_slots // 2, self._place.bucket_slot(bucket)
        first, capacity = index.generation_first(word, region_first, region_slots), index.capacity_of(word)
        other = region_first + half if first == region_first else region_first
        file = self._arena.files.index
        file.punch(SLOT_BYTES * other, SLOT_BYTES * half)
        file.punch(SLOT_BYTES * (first + capacity), SLOT_BYTES * (half - capacity))

    # --- growth -----------------------------------------------------------------------------------------------

    def make_room(self, counts: Int64) -> MemoryBudgetError | None:
        """Grows the indexes so that counts[bucket] more slots (int64 [buckets]) can be used.

        A bucket whose growth the memory budget does not allow at present keeps its index: `rooms` gives the slots that
        it has left, and the last refusal is returned. Raises ArenaFullError.
        """
        refusal: MemoryBudgetError | None = None
        capacities = self._headers[:, index.GENERATION] & ((1 << index.CAPACITY_BITS) - 1)
        used = self._headers[:, index.USED_SLOTS] + counts
        crowded = (counts > 0) & (used * (_PARTS * len(counts)) > capacities * self._begin)
        for bucket in np.flatnonzero(crowded | (self._growths[:, GROWTH_CAPACITY] > 0)).tolist():
            try:
                self._make_room(bucket, int(counts[bucket]))
            except MemoryBudgetError as error:
                refusal = error
        return refusal

    def rooms(self) -> Int64:
        """How many more slots of each bucket's published generation can be used: int64 [buckets]."""
        capacities = self._headers[:, index.GENERATION] & ((1 << index.CAPACITY_BITS) - 1)
        left: Int64 = capacities * _FULL // _PARTS - self._headers[:, index.USED_SLOTS]
        return np.maximum(0, left)

    def _make_room(self, bucket: int, incoming: int) -> None:
        if not self._growths[bucket, GROWTH_CAPACITY]:
            self._begin_growth(bucket, incoming)
        remaining, room = self._remaining(bucket), self._room(bucket)
        share = -(-remaining * incoming // room) if room > incoming else remaining
        self._advance(bucket, max(share, _STEP_SLOTS))
        for _ in range(_MOST_GROWTHS):
            if self._room(bucket) >= incoming:
                return
            # More ids come in one call than the generation was sized for.
            if not self._growths[bucket, GROWTH_CAPACITY]:
                self._begin_growth(bucket, incoming)
            self._advance(bucket, self._remaining(bucket))
        if self._room(bucket) < incoming:
            raise self._full(bucket, f"{incoming} ids at once")

    def _full(self, bucket: int, what: str) -> ArenaFullError:
        return ArenaFullError(
            f"the index of table {self._name!r}, bucket {bucket}, has no room for {what}: its largest generation has "
            f"{self._room(bucket)} slots left",
            hint="raise resources.memory, set evict_after_samples, or raise admit_after",
        )

    def _generation(self, bucket: int) -> tuple[int, int]:
        """(first slot, number of slots) of the published generation."""
        word = int(self._headers[bucket, index.GENERATION])
        first = index.generation_first(word, self._place.bucket_slot(bucket), self._place.region_slots)
        return first, index.capacity_of(word)

    def _room(self, bucket: int) -> int:
        """Slots of the published generation that may still be used."""
        _, capacity = self._generation(bucket)
        return capacity * _FULL // _PARTS - int(self._headers[bucket, index.USED_SLOTS])

    def _remaining(self, bucket: int) -> int:
        """Slots that have to be allocated and copied until the generation under construction is complete."""
        _, capacity = self._generation(bucket)
        growth = self._growths[bucket]
        return int(growth[GROWTH_CAPACITY] - self._allocated[bucket] + capacity - growth[GROWTH_COPIED])

    def _begin_growth(self, bucket: int, incoming: int) -> None:
        header, largest = self._headers[bucket], self._place.region_slots // 2
        # Upper bound of the rows that exist when the copy is complete.
        needed = int(header[index.LIVE_ROWS]) + max(incoming, self._room(bucket))
        pending = self._pending(bucket)
        # Sightings of ids without a row may be dropped. They are dropped when rows and sightings together exceed half
        # of the largest generation. The copy is then made within this call, before the ids of this call are sighted,
        # so that their sightings are kept.
        keep_pending = _SLOTS_PER_KEY * (needed + pending) <= largest
        capacity = self._capacity_for(needed + pending * keep_pending)
        # `pending` may be an estimate: sightings beyond this number are not copied, so that rows find their slots.
        most_pending = max(0, capacity // 2 - int(header[index.LIVE_ROWS])) if keep_pending else 0
        self._growths[bucket] = (self._next_first(bucket), capacity, 0, 0, most_pending)
        self._allocated[bucket] = 0
        if not keep_pending:
            try:
                self._advance(bucket, self._remaining(bucket))
            except MemoryBudgetError:
                self._growths[bucket] = 0  # the next attempt may keep sightings, for which this one is too small
                raise

    def _pending(self, bucket: int) -> int:
        """Number of ids in the published generation that were sighted and have no row. In a large generation it is
        estimated from a sample, because counting all slots takes long."""
        first, capacity = self._generation(bucket)
        if capacity == 0 or self._arena.admit_after(self._table) == 1:
            return 0
        if capacity <= _SAMPLE_SLOTS:
            return index_upkeep.count_slots(self._place.slots, first, capacity)[1]
        # The sample has pages from the whole generation, so it also meets ids that were crafted to lie close together.
        stride = capacity // (_SAMPLE_SLOTS // _PAGE_SLOTS)
        pages = range(0, capacity - _PAGE_SLOTS + 1, stride)
        pending = sum(index_upkeep.count_slots(self._place.slots, first + at, _PAGE_SLOTS)[1] for at in pages)
        return pending * capacity // (len(pages) * _PAGE_SLOTS)

    def _capacity_for(self, keys: int) -> int:
        """Slots for a generation of which `keys` keys take half, in whole pages; at most half of the region."""
        wanted = -(-_SLOTS_PER_KEY * keys // _PAGE_SLOTS) * _PAGE_SLOTS
        return min(self._place.region_slots // 2, max(index.MIN_CAPACITY, wanted))

    def _next_first(self, bucket: int) -> int:
        """First slot of the generation that follows the published one."""
        next_word = int(self._headers[bucket, index.GENERATION]) + (1 << index.CAPACITY_BITS)
        return index.generation_first(next_word, self._place.bucket_slot(bucket), self._place.region_slots)

    def _advance(self, bucket: int, slots: int) -> None:
        """Allocates and copies `slots` slots of the generation under construction, and publishes it when it is
        complete. Raises ArenaFullError."""
        growth = self._growths[bucket]
        new_first, new_capacity = int(growth[GROWTH_FIRST]), int(growth[GROWTH_CAPACITY])
        if not new_capacity:
            return
        allocated = int(self._allocated[bucket])
        fresh = min(-(-slots // _PAGE_SLOTS) * _PAGE_SLOTS, new_capacity - allocated)
        if fresh > 0:
            self._clear(new_first + allocated, fresh)
            self._allocated[bucket] = allocated + fresh
        if allocated + fresh < new_capacity:
            return
        first, capacity = self._generation(bucket)
        start = int(growth[GROWTH_COPIED])
        stop = min(start + max(0, slots - fresh), capacity)
        used, pending = index_upkeep.copy_slots(
            self._place.slots,
            first + start,
            first + stop,
            new_first,
            new_capacity,
            self._place.index_key,
            int(growth[GROWTH_PENDING]),
        )
        if used < 0:
            growth[:] = 0
            raise self._full(bucket, f"row {pending}")
        growth[GROWTH_USED] += used
        growth[GROWTH_PENDING] -= pending
        growth[GROWTH_COPIED] = stop
        if stop == capacity:
            self._publish(bucket, new_capacity, int(growth[GROWTH_USED]))

    def _clear(self, first: int, count: int, patience_s: float = 0.0) -> None:
        """Allocates and zeroes `count` slots, which do not belong to the published generation."""
        file, offset, length = self._arena.files.index, SLOT_BYTES * first, SLOT_BYTES * count
        file.punch(offset, length)
        purpose = f"the index of table {self._name!r}"
        self._arena.allowance.allocate(file, offset, length, purpose, is_spare=True, patience_s=patience_s)

    def _publish(self, bucket: int, capacity: int, used: int) -> None:
        header = self._headers[bucket]
        generation = (int(header[index.GENERATION]) >> index.CAPACITY_BITS) + 1
        announce(header, index.GENERATION, generation << index.CAPACITY_BITS | capacity)
        header[index.USED_SLOTS] = used
        self._growths[bucket] = 0
        self._trim_after[bucket] = GRACES

    def follow(self, keys: Int64, positions: Int64) -> None:
        """Repeats the last change of the keys (int64 [n]) at `positions` in generations under construction. Raises
        ArenaFullError."""
        if not self._growths[:, GROWTH_CAPACITY].any():
            return
        place = self._place
        position = index_upkeep.follow_slots(
            place.slots,
            place.control,
            place.first_header,
            place.first_slot,
            place.region_slots,
            place.shift,
            place.index_key,
            self._growths,
            keys,
            positions,
        )
        if position >= 0:
            bucket = int(index.buckets_of(keys[position : position + 1], place.shift)[0])
            self._growths[bucket] = 0  # only the unfinished copy is lost; the published generation is complete
            raise self._full(bucket, f"id {keys[position]}")

    # --- rebuilding -------------------------------------------------------------------------------------------

    def rebuild(self, bucket: int, ids: Int64, seen: UInt32) -> None:
        """Builds and publishes a generation with the bucket's rows whose `seen` is not 0.

        ids: int64 [n]; seen: uint32 [n]. Raises ArenaFullError, and ArenaError for an id that has two rows.
        """
        self._growths[bucket] = 0
        first, capacity = self._next_first(bucket), self._capacity_for(int(np.count_nonzero(seen)))
        self._clear(first, capacity, PATIENCE_S)
        used = index_upkeep.fill_slots(self._place.slots, first, capacity, self._place.index_key, ids, seen)
        if used == index.FULL:
            raise self._full(bucket, f"{np.count_nonzero(seen)} rows")
        if used < 0:
            raise ArenaError(f"table {self._name!r}, bucket {bucket}: id {ids[-1 - used]} has two rows")
        self._publish(bucket, capacity, used)
