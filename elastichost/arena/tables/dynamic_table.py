"""The writer of one dynamic table: rows for new ids, growth of their buckets, eviction, repair.

Only the PS that owns a bucket calls it. What a successor needs is in the arena; `open_bucket` rebuilds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.arena.files import MappedFile
from elastichost.arena.index import table as index
from elastichost.arena.index import upkeep as index_upkeep
from elastichost.arena.index.hashing import initial_stream
from elastichost.arena.layout import HEADER_WORDS, rows_ahead
from elastichost.arena.memory_board import PATIENCE_S, pages_bytes
from elastichost.arena.rows.row_kernels import initialise_rows, zero_rows
from elastichost.arena.tables.growth import GRACES, IndexWriter
from elastichost.arena.words import announce
from elastichost.errors import ArenaFullError, MemoryBudgetError, ProtocolError

__all__ = ["LEFT_OUT", "DynamicTable"]

# The row number of an id that got no row because memory was short. -1 is an id without a row for any other reason.
LEFT_OUT = -2

Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]


@dataclass(slots=True)
class _Bucket:
    """The writer's state of an owned bucket. free: int64, rows in the bucket that may be handed out. cooling: GRACES
    arrays of freed rows that readers may still use, the oldest first; each `confirm_grace` makes the oldest free."""

    free: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    cooling: list[Int64] = field(default_factory=lambda: [np.zeros(0, np.int64)] * GRACES)

    def cool(self, rows: Int64) -> None:
        self.cooling[-1] = np.concatenate([self.cooling[-1], rows])

    def confirm_grace(self) -> None:
        self.free = np.concatenate([self.free, self.cooling[0]])
        self.cooling = [*self.cooling[1:], np.zeros(0, np.int64)]


class DynamicTable:
    """Writer of the owned buckets of one dynamic table. Row numbers without more words are in the table's row space."""

    def __init__(self, arena: Arena, table: int) -> None:
        self.spec = arena.model.tables[table]
        self._arena = arena
        self._place = arena.index_place(table)
        self._index = IndexWriter(arena, table)
        self._ids = arena.ids_view(table)
        self._seen = arena.seen_view(table)
        self._embeddings = arena.model.embeddings_of(table)
        self._streams = [initial_stream(arena.layout.seed, arena.model.initial_name(e)) for e in self._embeddings]
        self._rows = [arena.rows_view(e.index) for e in self._embeddings]
        states = [arena.state_view(e.index) for e in self._embeddings]
        # A row-wise state becomes a column, so that one kernel sets both shapes to zero.
        self._states = [state.reshape(len(self._ids), -1) for state in states if state is not None]
        self._widest = max((e.padded_dim for e in self._embeddings), default=4)
        self._owned: dict[int, _Bucket] = {}
        buckets = arena.layout.bucket_count(table)
        first_word = self._place.header_word(0)
        self._headers = arena.control[first_word : first_word + buckets * HEADER_WORDS].reshape(buckets, HEADER_WORDS)

    def open_bucket(self, bucket: int) -> int:
        """Takes over a bucket. A new bucket gets an index, the bucket of a former writer is repaired. Returns how
        many rows the repair took back. Raises ArenaFullError."""
        header = self._arena.header(self.spec.index, bucket)
        state = self._owned[bucket] = _Bucket()
        self._index.open(bucket)
        if not header[index.GENERATION] or not header[index.FILLED]:
            self._reset(bucket, np.zeros(0, np.int64), np.zeros(0, np.uint32))
            return 0
        place, rows = self._place, int(header[index.NEXT_ROW])
        first = self._first_row(bucket)
        free = np.zeros(rows, np.int64)
        count, taken_back = index_upkeep.repair(
            place.slots,
            place.control,
            place.header_word(bucket),
            place.bucket_slot(bucket),
            place.region_slots,
            place.index_key,
            self._ids[first : first + rows],
            self._seen[first : first + rows],
            self._arena.notes_seen(self.spec.index),
            free,
        )
        # How many graces the former writer had confirmed is not recorded, so all free rows wait for all graces.
        state.cool(free[:count])
        return taken_back

    def close_bucket(self, bucket: int) -> None:
        """Ends the ownership of a bucket; its rows stay in the arena."""
        del self._owned[bucket]
        self._index.close(bucket)

    @property
    def needs_grace(self) -> bool:
        """Whether freed rows or replaced index generations wait for `confirm_grace`."""
        return self._index.needs_grace or any(any(map(len, state.cooling)) for state in self._owned.values())

    def confirm_grace(self) -> None:
        """Called when no reader still uses a row number or an index generation it read before the previous call."""
        for state in self._owned.values():
            state.confirm_grace()
        self._index.confirm_grace()

    def _first_row(self, bucket: int) -> int:
        return bucket * self._place.bucket_rows

    def _require_owned(self, counts: Int64) -> None:
        for bucket in np.flatnonzero(counts):
            if int(bucket) not in self._owned:
                raise ProtocolError(f"bucket {bucket} of table {self.spec.name!r} is not owned by this process")

    def create(self, keys: Int64, rows: Int64, seen_value: int) -> int:
        """Counts a sighting of every key (int64 [n]) whose rows[i] is below 0, and gives a row to each admitted key.

        Writes the new row numbers to `rows` (int64 [n]) and returns how many there are. A row gets initial weights and
        zero state before it becomes visible. When the allowance is too small, keys get LEFT_OUT if the memory board has
        `leaves_out` set; otherwise MemoryBudgetError is raised, and the caller may try again later.

        Raises ArenaFullError, of which MemoryBudgetError is one case, and ProtocolError for a key in a bucket that this
        process does not own. A raised error leaves no incomplete row.
        """
        made = 0
        missing = np.flatnonzero(rows < 0)
        # Steps are bounded, so that even the largest index of a bucket, with four slots a row, has room for one step.
        step = self._place.bucket_rows // 2
        for start in range(0, len(missing), step):
            positions = missing[start : start + step]
            counts = self._count(keys, positions)
            self._require_owned(counts)
            refusal = self._index.make_room(counts)
            if refusal is not None:
                positions = self._with_slots(keys, positions, counts, rows, refusal)
            try:
                made += self._create_some(keys, positions, rows, seen_value)
            finally:
                self._index.follow(keys, positions)
        return made

    def _create_some(self, keys: Int64, positions: Int64, rows: Int64, seen_value: int) -> int:
        place = self._place
        admitted = np.empty(len(positions), np.int64)
        number, refused = index.sight(
            place.slots,
            place.control,
            place.first_header,
            place.first_slot,
            place.region_slots,
            place.shift,
            place.index_key,
            self._arena.admit_after(self.spec.index),
            keys,
            positions,
            admitted,
        )
        self._arena.allowance.note_left_out(refused)
        if number == 0:
            return 0
        admitted = admitted[:number]
        counts = self._count(keys, admitted)
        admitted = self._with_rows(keys, admitted, counts, rows)
        if len(admitted) == 0:
            return 0
        new_keys = keys[admitted]
        given = self._take_rows(new_keys, counts)
        self._write_initial(given, new_keys)
        new_rows = given.copy()
        made = index.publish_rows(
            place.slots,
            place.control,
            place.first_header,
            place.first_slot,
            place.region_slots,
            place.bucket_rows,
            place.shift,
            place.index_key,
            new_keys,
            new_rows,
            self._seen,
            seen_value,
        )
        rows[admitted] = new_rows
        if made < len(admitted):
            self._return_rows(given[given != new_rows])
        return made

    def _with_slots(
        self, keys: Int64, positions: Int64, counts: Int64, rows: Int64, refusal: MemoryBudgetError
    ) -> Int64:
        """The positions for which the indexes have room; the rows of the others become LEFT_OUT. counts: positions by
        bucket, int64 [buckets]. Raises the refusal if the memory board does not have `leaves_out` set."""
        rooms = self._index.rooms()
        if (counts <= rooms).all():
            return positions
        if not self._arena.board.leaves_out:
            raise refusal
        kept = _first_of_each(index.buckets_of(keys[positions], self._place.shift), np.minimum(counts, rooms))
        return self._leave_out(positions, kept, rows)

    def _with_rows(self, keys: Int64, admitted: Int64, counts: Int64, rows: Int64) -> Int64:
        """The admitted positions for which rows are available; the rows of the others become LEFT_OUT. counts:
        positions by bucket, int64 [buckets]; reduced in place to those that are kept. Raises ArenaFullError."""
        next_rows = self._headers[:, index.NEXT_ROW] + counts
        for bucket in np.flatnonzero((counts > 0) & (next_rows > self._headers[:, index.ALLOCATED_ROWS])).tolist():
            try:
                self._make_room_for_rows(bucket, int(counts[bucket]))
            except MemoryBudgetError:
                if not self._arena.board.leaves_out:
                    raise
                header = self._headers[bucket]
                allocated = int(header[index.ALLOCATED_ROWS] - header[index.NEXT_ROW])
                counts[bucket] = allocated + len(self._owned[bucket].free)
        if counts.sum() == len(admitted):
            return admitted
        kept = _first_of_each(index.buckets_of(keys[admitted], self._place.shift), counts)
        return self._leave_out(admitted, kept, rows)

    def _leave_out(self, positions: Int64, kept: Int64, rows: Int64) -> Int64:
        """positions[kept]. The rows of the other positions become LEFT_OUT."""
        rows[np.delete(positions, kept)] = LEFT_OUT
        self._arena.allowance.note_left_out(len(positions) - len(kept))
        return positions[kept]

    def _count(self, keys: Int64, positions: Int64) -> Int64:
        counts = np.zeros(self._arena.layout.bucket_count(self.spec.index), np.int64)
        index.count_by_bucket(keys, positions, self._place.shift, counts)
        return counts

    def _take_rows(self, keys: Int64, counts: Int64) -> Int64:
        """A row for each key, int64 [n]: first the free rows of its bucket, then rows that were never handed out."""
        pools: list[Int64] = []
        for bucket in np.flatnonzero(counts):
            wanted, state, first = int(counts[bucket]), self._owned[int(bucket)], self._first_row(int(bucket))
            reused = state.free[len(state.free) - min(wanted, len(state.free)) :]
            state.free = state.free[: len(state.free) - len(reused)]
            header = self._arena.header(self.spec.index, int(bucket))
            next_row = int(header[index.NEXT_ROW])
            header[index.NEXT_ROW] = next_row + wanted - len(reused)
            pools.append(first + reused)
            pools.append(np.arange(first + next_row, first + next_row + wanted - len(reused), dtype=np.int64))
        taken = np.empty(len(keys), np.int64)
        # The stable sort orders the keys by bucket, as the pools are ordered.
        taken[np.argsort(index.buckets_of(keys, self._place.shift), kind="stable")] = np.concatenate(pools)
        return taken

    def _return_rows(self, rows: Int64) -> None:
        """Makes rows free again that were never visible; they need no grace."""
        buckets = rows // self._place.bucket_rows
        for bucket in np.unique(buckets):
            state = self._owned[int(bucket)]
            state.free = np.concatenate([state.free, rows[buckets == bucket] - self._first_row(int(bucket))])

    def _write_initial(self, rows: Int64, keys: Int64) -> None:
        self._ids[rows] = keys
        for embedding, stream, weights in zip(self._embeddings, self._streams, self._rows, strict=True):
            initialise_rows(weights, rows, keys, embedding.dim, embedding.init_low, embedding.init_high, stream)
        for state in self._states:
            zero_rows(state, rows)

    def _make_room_for_rows(self, bucket: int, count: int) -> None:
        header = self._arena.header(self.spec.index, bucket)
        needed = int(header[index.NEXT_ROW]) + max(0, count - len(self._owned[bucket].free))
        self._allocate_rows(bucket, needed)

    def _allocate_rows(self, bucket: int, needed: int, patience_s: float = 0.0) -> None:
        """Allocates at least the first `needed` rows of a bucket. Raises ArenaFullError."""
        header, capacity = self._arena.header(self.spec.index, bucket), self._place.bucket_rows
        allocated = int(header[index.ALLOCATED_ROWS])
        if needed <= allocated:
            return
        if needed > capacity:
            raise ArenaFullError(
                f"table {self.spec.name!r}: bucket {bucket} needs {needed} rows; its capacity is {capacity}",
                hint="raise resources.memory, set evict_after_samples, or raise admit_after",
            )
        generous = min(capacity, max(needed, allocated + rows_ahead(allocated, self._widest)))
        if not self._arena.allowance.allows(self._bytes_of(bucket, allocated, generous)):
            generous = needed
        try:
            self._allocate_range(bucket, allocated, generous, patience_s)
        except ArenaFullError:
            if generous == needed:
                raise
            generous = needed
            self._allocate_range(bucket, allocated, needed, patience_s)
        header[index.ALLOCATED_ROWS] = generous

    def _allocate_range(self, bucket: int, start: int, stop: int, patience_s: float) -> None:
        purpose, allowance = f"table {self.spec.name!r}", self._arena.allowance
        allowance.require(self._bytes_of(bucket, start, stop), purpose, patience_s=patience_s)
        for file, offset_bytes, size_bytes in self._ranges(self._first_row(bucket) + start, stop - start):
            try:
                file.allocate(offset_bytes, size_bytes, purpose)
            except ArenaFullError as error:
                raise allowance.refused(self._bytes_of(bucket, start, stop), error) from error
            allowance.spend(pages_bytes(offset_bytes, size_bytes))

    def _bytes_of(self, bucket: int, start: int, stop: int) -> int:
        """Bytes of all pages that the rows start to stop - 1 of a bucket touch."""
        return sum(
            pages_bytes(offset, size) for _, offset, size in self._ranges(self._first_row(bucket) + start, stop - start)
        )

    def _ranges(self, first: int, count: int) -> Iterator[tuple[MappedFile, int, int]]:
        """(file, first byte, bytes) of each array of `count` rows from `first` on, in the table's row space."""
        layout, files, table = self._arena.layout, self._arena.files, self.spec.index
        for e in self._embeddings:
            size = e.bytes_per_element
            offset = layout.rows_offset(e.index) + first * e.padded_dim
            yield files.rows, size * offset, size * count * e.padded_dim
            if e.state_floats_per_row:
                offset = layout.state_offset(e.index) + first * e.state_floats_per_row
                yield files.state, 4 * offset, 4 * count * e.state_floats_per_row
        yield files.ids, 8 * (layout.ids_offset(table) + first), 8 * count
        yield files.seen, 4 * (layout.seen_offset(table) + first), 4 * count

    def evict(self, bucket: int, last_seen: int) -> int:
        """Evicts rows with a stamp of at most `last_seen`, and returns how many. They are reused after two graces."""
        header, place, first = self._arena.header(self.spec.index, bucket), self._place, self._first_row(bucket)
        rows = int(header[index.NEXT_ROW])
        freed = np.empty(rows, np.int64)
        count = index_upkeep.evict_rows(
            place.slots,
            place.control,
            place.header_word(bucket),
            place.bucket_slot(bucket),
            place.region_slots,
            place.index_key,
            self._ids[first : first + rows],
            self._seen[first : first + rows],
            last_seen,
            freed,
        )
        self._index.follow(self._ids[first : first + rows], freed[:count])
        self._owned[bucket].cool(freed[:count])
        header[index.EVICTED] += count
        return count

    def copy_ids(self, bucket: int) -> tuple[Int64, UInt32]:
        """Copies of the ids (int64 [next_row]) and of `seen` (uint32 [next_row]) of a bucket. `seen` is 0 for every row
        without an id."""
        header, place, first = self._arena.header(self.spec.index, bucket), self._place, self._first_row(bucket)
        rows = int(header[index.NEXT_ROW])
        ids, seen = self._ids[first : first + rows].copy(), self._seen[first : first + rows].copy()
        if self._arena.notes_seen(self.spec.index):
            index_upkeep.mapped_only(
                place.slots,
                place.control,
                place.header_word(bucket),
                place.bucket_slot(bucket),
                place.region_slots,
                place.index_key,
                ids,
                seen,
            )
        return ids, seen

    def begin_restore(self, bucket: int, rows: int) -> None:
        """Allocates the first `rows` rows of a bucket, and marks the bucket's content as invalid until `restore_ids`.
        Raises ArenaFullError."""
        announce(self._arena.header(self.spec.index, bucket), index.FILLED, 0)
        self._allocate_rows(bucket, rows, PATIENCE_S)

    def restore_ids(self, bucket: int, ids: Int64, seen: UInt32) -> None:
        """Writes the ids (int64 [n]) and `seen` (uint32 [n]) of a bucket, and builds its index."""
        self._owned[bucket] = _Bucket()
        self._reset(bucket, ids, seen)
        self._owned[bucket].cool(np.flatnonzero(seen == 0).astype(np.int64))

    def _reset(self, bucket: int, ids: Int64, seen: UInt32) -> None:
        header, first = self._arena.header(self.spec.index, bucket), self._first_row(bucket)
        announce(header, index.FILLED, 0)
        self._allocate_rows(bucket, len(ids), PATIENCE_S)
        self._ids[first : first + len(ids)] = ids
        self._seen[first : first + int(header[index.ALLOCATED_ROWS])] = 0
        self._seen[first : first + len(ids)] = seen
        header[index.NEXT_ROW], header[index.INTENT] = len(ids), 0
        header[index.LIVE_ROWS] = int(np.count_nonzero(seen))
        self._index.rebuild(bucket, ids, seen)
        announce(header, index.FILLED, 1)


def _first_of_each(buckets: npt.NDArray[np.uint8], counts: Int64) -> Int64:
    """Positions in `buckets` (uint8 [n]) of the first counts[b] entries of each bucket b, ascending."""
    order = np.argsort(buckets, kind="stable")
    of_sorted = buckets[order]
    rank = np.arange(len(order)) - np.searchsorted(of_sorted, of_sorted)
    return np.sort(order[rank < counts[of_sorted]])
