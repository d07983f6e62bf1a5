"""Growth of a dynamic table's index, a little with every call, so that no call waits for the whole of it.

A generation under construction fills while the published one goes on serving: `make_room` allocates and copies a
share of it, sized so that it is complete before the published one is full; `follow` repeats in it what happens to
slots that are copied already. It is known to this process only. A successor of a killed writer finds the published
generation complete, forgets the other, and gives its pages back.

Why half full and not less: memory against probes. Measured with 5 million keys, ns for a key that is there and for
one that is not, and bytes of index for a key:

    load     0.25   0.33   0.50   0.60   0.70   0.80
    hit        35     35     41     46     54     61
    miss       37     42     63     77     89    116
    bytes      64     48     32     27     23     20

With ids as skewed as real ones (Zipf) the load makes no difference at all. From 0.5 on each byte saved costs more
than the one before, and misses, which are asked of the PS anyway, soon cost a quarter of a microsecond a sample.
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

GRACES = 2  # confirmations after which no reader can hold a freed row or an old generation

# Of a published generation's slots, in sixteenths: growth begins at 9 to 10 used and is complete before 11 are.
_BEGIN, _FULL, _PARTS = 9, 11, 16
_SLOTS_PER_KEY = 2  # of a generation when its construction begins
_STEP_SLOTS = 8192  # allocated or copied by one call at least: about 40 us
_SAMPLE_SLOTS = 65_536
_PAGE_SLOTS = PAGE_BYTES // SLOT_BYTES
_MOST_GROWTHS = 3  # within one call: one under construction, one for what comes, one without sightings


class IndexWriter:
    """Writer of the index of one dynamic table's owned buckets."""

    def __init__(self, arena: Arena, table: int) -> None:
        self._arena, self._table = arena, table
        self._name = arena.model.tables[table].name
        self._place = arena.index_place(table)
        buckets = arena.layout.bucket_count(table)
        first_word = self._place.header_word(0)
        self._headers = arena.control[first_word : first_word + buckets * HEADER_WORDS].reshape(buckets, HEADER_WORDS)
        # Buckets fill alike, so with one limit for all they would all grow at the same time.
        self._begin = _BEGIN * buckets + np.arange(buckets)
        self._growths = np.zeros((buckets, GROWTH_WORDS), np.int64)
        self._allocated = np.zeros(buckets, np.int64)  # slots of the generation under construction
        self._trim_after: dict[int, int] = {}  # owned bucket -> graces until other generations' pages are given back

    # --- ownership --------------------------------------------------------------------------------------------

    def open(self, bucket: int) -> None:
        """Takes over the bucket's published generation; whatever else lies in its region is to be given back."""
        self._growths[bucket] = 0
        self._trim_after[bucket] = GRACES

    def close(self, bucket: int) -> None:
        """Gives the bucket up, and forgets its generation under construction."""
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
            # While a generation is under construction its publication will bring the next trim.
            if left == 1 and not self._growths[bucket, GROWTH_CAPACITY]:
                self._trim(bucket)

    def _trim(self, bucket: int) -> None:
        """Gives back the pages of every generation but the published one."""
        word, region_slots = int(self._headers[bucket, index.GENERATION]), self._place.region_slots
        half, region_first = region_slots // 2, self._place.bucket_slot(bucket)
        first, capacity = index.generation_first(word, region_first, region_slots), index.capacity_of(word)
        other = region_first + half if first == region_first else region_first
        file = self._arena.files.index
        file.punch(SLOT_BYTES * other, SLOT_BYTES * half)
        file.punch(SLOT_BYTES * (first + capacity), SLOT_BYTES * (half - capacity))

    # --- growth -----------------------------------------------------------------------------------------------

    def make_room(self, counts: Int64) -> MemoryBudgetError | None:
        """Makes sure that `counts[bucket]` more slots (int64 [buckets]) can be used. A bucket whose growth is not
        allowed now goes on with what its index has room for: `rooms` tells how many, the answer why. Raises
        ArenaFullError."""
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
        """int64 [buckets]: how many more slots of each can be used as they are."""
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
            # More at once than the generation was laid out for.
            if not self._growths[bucket, GROWTH_CAPACITY]:
                self._begin_growth(bucket, incoming)
            self._advance(bucket, self._remaining(bucket))
        if self._room(bucket) < incoming:
            raise self._full(bucket, f"{incoming} ids at once")

    def _full(self, bucket: int, what: str) -> ArenaFullError:
        return ArenaFullError(
            f"the index of table {self._name!r}, bucket {bucket}, has no place for {what}: {self._room(bucket)} slots "
            "of its largest generation are left",
            hint="give the job more memory, set evict_after_samples, or raise admit_after",
        )

    def _generation(self, bucket: int) -> tuple[int, int]:
        """(first slot, slots) of the published generation."""
        word = int(self._headers[bucket, index.GENERATION])
        first = index.generation_first(word, self._place.bucket_slot(bucket), self._place.region_slots)
        return first, index.capacity_of(word)

    def _room(self, bucket: int) -> int:
        """Slots that may still be used of the published generation."""
        _, capacity = self._generation(bucket)
        return capacity * _FULL // _PARTS - int(self._headers[bucket, index.USED_SLOTS])

    def _remaining(self, bucket: int) -> int:
        """Slots to allocate and to copy until the generation under construction is complete."""
        _, capacity = self._generation(bucket)
        growth = self._growths[bucket]
        return int(growth[GROWTH_CAPACITY] - self._allocated[bucket] + capacity - growth[GROWTH_COPIED])

    def _begin_growth(self, bucket: int, incoming: int) -> None:
        header, largest = self._headers[bucket], self._place.region_slots // 2
        # Until the copy is complete so many more may come.
        needed = int(header[index.LIVE_ROWS]) + max(incoming, self._room(bucket))
        pending = self._pending(bucket)
        # Sightings are a courtesy with bounds: when they alone would overfill the index they start anew. All at once,
        # so that those of this very call are not dropped with them.
        keep_pending = _SLOTS_PER_KEY * (needed + pending) <= largest
        capacity = self._capacity_for(needed + pending * keep_pending)
        # What the sample did not see is dropped when the generation is full of what it was made for.
        most_pending = max(0, capacity // 2 - int(header[index.LIVE_ROWS])) if keep_pending else 0
        self._growths[bucket] = (self._next_first(bucket), capacity, 0, 0, most_pending)
        self._allocated[bucket] = 0
        if not keep_pending:
            try:
                self._advance(bucket, self._remaining(bucket))
            except MemoryBudgetError:
                self._growths[bucket] = 0  # it is too small for those that would be kept next time
                raise

    def _pending(self, bucket: int) -> int:
        """Sighted ids without a row in the published generation: a close estimate, since counting all takes long."""
        first, capacity = self._generation(bucket)
        if capacity == 0 or self._arena.admit_after(self._table) == 1:
            return 0
        if capacity <= _SAMPLE_SLOTS:
            return index_upkeep.count_slots(self._place.slots, first, capacity)[1]
        # Pages from everywhere: ids that were made to lie close to each other are seen, too.
        stride = capacity // (_SAMPLE_SLOTS // _PAGE_SLOTS)
        pages = range(0, capacity - _PAGE_SLOTS + 1, stride)
        pending = sum(index_upkeep.count_slots(self._place.slots, first + at, _PAGE_SLOTS)[1] for at in pages)
        return pending * capacity // (len(pages) * _PAGE_SLOTS)

    def _capacity_for(self, keys: int) -> int:
        """Whole pages of slots of which `keys` take half, if the region has so many."""
        wanted = -(-_SLOTS_PER_KEY * keys // _PAGE_SLOTS) * _PAGE_SLOTS
        return min(self._place.region_slots // 2, max(index.MIN_CAPACITY, wanted))

    def _next_first(self, bucket: int) -> int:
        """First slot of the generation after the published one."""
        next_word = int(self._headers[bucket, index.GENERATION]) + (1 << index.CAPACITY_BITS)
        return index.generation_first(next_word, self._place.bucket_slot(bucket), self._place.region_slots)

    def _advance(self, bucket: int, slots: int) -> None:
        """Allocates and copies `slots` slots of the generation under construction; publishes it when it is complete."""
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
        """Zeroed and allocated slots for a generation that is not the published one."""
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
        """Repeats what happened to keys (int64 [n]) at `positions` in generations under construction."""
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
            self._growths[bucket] = 0  # what is published stays complete
            raise self._full(bucket, f"id {keys[position]}")

    # --- from nothing -----------------------------------------------------------------------------------------

    def rebuild(self, bucket: int, ids: Int64, seen: UInt32) -> None:
        """Publishes a generation of the bucket's rows with `seen != 0` (ids int64 [n], seen uint32 [n]).

        Raises ArenaFullError, and ArenaError for an id that has two rows.
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
