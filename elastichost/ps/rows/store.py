"""The rows of the buckets that a PS owns: creates, finds, evicts, copies and restores them.

Rules
1. Only the owner of a bucket creates, evicts or restores its rows and writes its index. There is at most one owner: the
   supervisor lets the next PS adopt a bucket only after the last one has released it or is dead.
2. With direct access workers update weights and optimizer state in place at the same time (Hogwild), and stamp the rows
   that they see. They never write ids, the index or bucket headers.
3. The word FILLED of a bucket's header is stored last when the bucket gets its rows, and set to 0 before its content is
   replaced. A bucket with FILLED 0 has no rows, whatever its memory holds.
4. A row of a dynamic table has initial weights, zero state and its id before its index entry is published.

A kill leaves FILLED 0 (the bucket is initialised, restored or copied again) or a bucket whose ids are complete; the
successor repairs its index when it adopts the bucket (`DynamicTable.open_bucket`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena, Rows
from elastichost.arena.index import table as index
from elastichost.arena.kernels import (
    SAMPLES_PER_STAMP,
    initial_stream,
    initialise_rows,
    kernel_ready,
    mark_seen,
    seen_stamp,
    take_keys,
    zero_rows,
)
from elastichost.arena.layout import HEADER_WORDS
from elastichost.arena.tables.bucket_space import allocate_bucket, free_bucket
from elastichost.arena.tables.dynamic_table import DynamicTable
from elastichost.arena.words import announce
from elastichost.errors import ArenaError, CheckpointError, IdOutOfRangeError, ProtocolError
from elastichost.ps.rows.row_lines import RowLines, table_facts
from elastichost.specs import Precision

__all__ = ["BlockKind", "BucketBlock", "RowStore"]

Scalar = TypeVar("Scalar", bound=np.generic)
Int64 = npt.NDArray[np.int64]
Block = npt.NDArray[np.generic]
BlockKind = Literal["rows", "state", "ids", "seen"]
# The dtype in which rows of each precision are stored.
_PRECISIONS: dict[np.dtype[np.generic], Precision] = {
    np.dtype(np.float32): "float32",
    np.dtype(np.uint16): "bfloat16",
}


class BucketBlock(NamedTuple):
    """One array of a bucket: `owner` is an embedding index (rows, state) or a table index (ids, seen)."""

    kind: BlockKind
    owner: int
    array: Block


class RowStore:
    """The rows of the adopted buckets. Row numbers are those of their table's row space. lines: reads weights and
    applies gradients. Raises ArenaError when the arena has another seed."""

    def __init__(self, arena: Arena, seed: int) -> None:
        if seed != arena.layout.seed:
            raise ArenaError(f"the arena was created with seed {arena.layout.seed}, but the job has seed {seed}")
        self._arena = arena
        self._tables = {t.index: DynamicTable(arena, t.index) for t in arena.model.tables if t.is_dynamic}
        self._seen = {table: arena.seen_view(table) for table in self._tables}
        self._facts = table_facts(arena.layout)
        self.lines = RowLines(arena)
        self._rows = [arena.rows_view(e.index) for e in arena.model.embeddings]
        self._states = [arena.state_view(e.index) for e in arena.model.embeddings]
        self._streams = [initial_stream(seed, arena.model.initial_name(e)) for e in arena.model.embeddings]
        self._owned: set[tuple[int, int]] = set()
        self.on_made: Callable[[int, Int64], None] | None = None  # called with a table and the row numbers made in it

    # --- ownership --------------------------------------------------------------------------------------------

    def adopt(self, buckets: Iterable[tuple[int, int]], *, initialise: bool) -> None:
        """Takes ownership of (table, bucket) pairs. Buckets that are owned already are not changed.

        With `initialise`, fixed buckets without rows get their initial rows; otherwise they wait for `restore_bucket`.
        Existing rows are never changed. Dynamic buckets are opened, and repaired if their last writer died. Raises
        ArenaFullError.
        """
        for table, bucket in buckets:
            if (table, bucket) in self._owned:
                continue
            if table in self._tables:
                self._tables[table].open_bucket(bucket)
            elif initialise and not self._arena.header(table, bucket)[index.FILLED]:
                self._initialise_fixed(table, bucket)
            self._owned.add((table, bucket))

    def release(self, buckets: Iterable[tuple[int, int]]) -> None:
        """Gives up ownership of buckets. Their rows stay in the arena for the next owner."""
        for table, bucket in buckets:
            if (table, bucket) in self._owned:
                self._owned.remove((table, bucket))
                if table in self._tables:
                    self._tables[table].close_bucket(bucket)

    def _initialise_fixed(self, table: int, bucket: int) -> None:
        layout = self._arena.layout
        first, header = layout.bucket_first_row(table, bucket), self._arena.header(table, bucket)
        allocate_bucket(self._arena, table, bucket)
        rows = np.arange(first, first + layout.bucket_rows(table, bucket), dtype=np.int64)
        for e in self._arena.model.embeddings_of(table):
            stream = self._streams[e.index]
            initialise_rows(self._rows[e.index], rows, rows, e.dim, e.init_low, e.init_high, stream)
            state = self._states[e.index]
            if state is not None:
                zero_rows(state.reshape(len(self._rows[e.index]), -1), rows)
        header[index.ALLOCATED_ROWS] = header[index.NEXT_ROW] = header[index.LIVE_ROWS] = len(rows)
        announce(header, index.FILLED, 1)

    def owns(self, table: int, bucket: int) -> bool:
        return (table, bucket) in self._owned

    def _require_owned(self, table: int, bucket: int) -> None:
        if (table, bucket) not in self._owned:
            name = self._arena.model.tables[table].name
            raise ProtocolError(f"bucket {bucket} of table {name!r} is not owned by this process")

    # --- keys to rows -----------------------------------------------------------------------------------------

    def rows_of(self, keys: Int64, bounds: Int64, create: bool, clock: int) -> Int64:
        """The row numbers int64 [n] of keys int64 [n]; table t has keys[bounds[t] : bounds[t + 1]].

        -1: no row (the id is unknown, or not seen often enough to be admitted); LEFT_OUT: no memory for a row. The key
        of a fixed table is its row number. With `create`, unknown ids of a dynamic table are counted as seen, and get
        rows with initial weights when they are admitted. clock: samples trained so far. Raises IdOutOfRangeError,
        ArenaFullError, and ProtocolError when a row would have to be made in a bucket that this process does not own.
        """
        keys = kernel_ready(keys)
        rows = np.empty(len(keys), np.int64)
        bad = int(take_keys(keys, bounds, self._facts, self._arena.control, HEADER_WORDS, rows))
        if bad >= 0:
            spec = self._arena.model.tables[int(np.searchsorted(bounds, bad, side="right")) - 1]
            raise IdOutOfRangeError(
                f"row {keys[bad]} of table {spec.name!r} is out of range (0 to {spec.rows - 1})",
                hint=f'set tables.{spec.name}.rows higher, or set tables.{spec.name}.out_of_range = "modulo"',
            )
        for table in self._tables:
            part = slice(int(bounds[table]), int(bounds[table + 1]))
            if part.start < part.stop:
                self._dynamic_rows(table, keys[part], rows[part], create, clock)
        return rows

    def rows_for(self, table: int, keys: Int64, create: bool, clock: int) -> Int64:
        """`rows_of`, for keys of one table."""
        bounds = np.where(np.arange(len(self._facts) + 1) > table, len(keys), 0)
        return self.rows_of(keys, bounds, create, clock)

    def _dynamic_rows(self, table: int, keys: Int64, rows: Int64, create: bool, clock: int) -> None:
        misses = self._arena.lookup(table, keys, rows)
        if create:
            stamp = seen_stamp(clock)
            if self._arena.notes_seen(table):
                mark_seen(self._seen[table], rows, stamp)
            if misses:
                missing = np.flatnonzero(rows < 0)
                try:
                    self._tables[table].create(keys, rows, stamp)
                finally:  # when memory runs out, some rows were made before the error
                    if self.on_made is not None:
                        made = rows[missing]
                        self.on_made(table, made[made >= 0])

    # --- eviction ---------------------------------------------------------------------------------------------

    def evict_after(self, table: int) -> int:
        """The present age, in samples without a sighting, at which rows of the table are evicted; 0: never."""
        return self._arena.evict_after(table)

    def evict(self, table: int, bucket: int, clock: int) -> int:
        """Evicts the rows of a bucket that were not seen for the table's `evict_after`. Returns their number.

        Their row numbers are reused after `confirm_grace` was called twice. Fixed tables, and tables whose age is 0,
        are not changed. clock: samples trained so far.
        """
        self._require_owned(table, bucket)
        age = self.evict_after(table) if table in self._tables else 0
        # A stamp s means: last seen before sample s * SAMPLES_PER_STAMP.
        last_seen = (clock - age) // SAMPLES_PER_STAMP
        if age <= 0 or last_seen < 1:
            return 0
        return self._tables[table].evict(bucket, last_seen)

    def note_round(self, evicted: int) -> None:
        """Notes in the memory board that a round over a table has evicted `evicted` rows."""
        self._arena.allowance.note_evicted(evicted)

    @property
    def needs_grace(self) -> bool:
        """Whether evicted rows, or an old generation of an index, wait for `confirm_grace` to be reused."""
        return any(table.needs_grace for table in self._tables.values())

    def confirm_grace(self) -> None:
        """A grace period is over: every reader has finished the batches it had looked up before the previous call."""
        for table in self._tables.values():
            table.confirm_grace()

    # --- copies -----------------------------------------------------------------------------------------------

    def snapshot_bucket(self, table: int, bucket: int, copy: Callable[[Block], Block] = np.copy) -> list[BucketBlock]:
        """Copies of everything that an owned bucket holds. n: all rows of a fixed bucket; of a dynamic bucket the rows
        that were ever handed out.

        Per embedding: rows float32, or bfloat16 as uint16, [n, padded_dim]; state float32 [n] or [n, padded_dim]. Per
        dynamic table: ids int64 [n] and seen uint32 [n] (0: the row is free). Sightings of ids that are not admitted
        are not included. copy: makes the copy of an array.
        """
        self._require_owned(table, bucket)
        layout, blocks = self._arena.layout, list[BucketBlock]()
        first = layout.bucket_first_row(table, bucket)
        if table in self._tables:
            ids, seen = self._tables[table].copy_ids(bucket)
            count = len(ids)
            blocks += [BucketBlock("ids", table, ids), BucketBlock("seen", table, seen)]
        else:
            count = layout.bucket_rows(table, bucket)
        for e in self._arena.model.embeddings_of(table):
            blocks.append(BucketBlock("rows", e.index, copy(self._rows[e.index][first : first + count])))
            state = self._states[e.index]
            if state is not None:
                blocks.append(BucketBlock("state", e.index, copy(state[first : first + count])))
        return blocks

    def restore_bucket(self, table: int, bucket: int, blocks: Sequence[tuple[str, int, Block]]) -> None:
        """Adopts the bucket if necessary, and replaces its content by the blocks of a snapshot.

        Raises CheckpointError for blocks that are missing or do not fit, before the content changes; ArenaFullError.
        """
        self.adopt([(table, bucket)], initialise=False)
        layout, given = self._arena.layout, {(kind, owner): array for kind, owner, array in blocks}
        first, header = layout.bucket_first_row(table, bucket), self._arena.header(table, bucket)
        ids = seen = None
        count = layout.bucket_rows(table, bucket)
        if table in self._tables:
            ids = self._block(given, table, bucket, "ids", table, (-1,), np.dtype(np.int64))
            count = len(ids)
            seen = self._block(given, table, bucket, "seen", table, (count,), np.dtype(np.uint32))
        contents: list[tuple[Rows, Block]] = []
        for e in self._arena.model.embeddings_of(table):
            for kind, view in (("rows", self._rows[e.index]), ("state", self._states[e.index])):
                if view is not None:
                    shape = (count, *view.shape[1:])
                    contents.append((view, self._block(given, table, bucket, kind, e.index, shape, view.dtype)))
        announce(header, index.FILLED, 0)
        self._make_room(table, bucket, count)
        for view, array in contents:
            view[first : first + count] = array
        if ids is not None and seen is not None:
            self._tables[table].restore_ids(bucket, _as(ids, np.int64), _as(seen, np.uint32))
        else:
            self._note_filled(table, bucket)

    def _make_room(self, table: int, bucket: int, rows: int) -> None:
        if table in self._tables:
            self._tables[table].begin_restore(bucket, rows)
        else:
            allocate_bucket(self._arena, table, bucket)

    def _note_filled(self, table: int, bucket: int) -> None:
        """Marks a bucket of a fixed table as filled."""
        header, rows = self._arena.header(table, bucket), self._arena.layout.bucket_rows(table, bucket)
        header[index.ALLOCATED_ROWS] = header[index.NEXT_ROW] = header[index.LIVE_ROWS] = rows
        announce(header, index.FILLED, 1)

    # --- moves between hosts ------------------------------------------------------------------------------------

    def begin_move(self, table: int, bucket: int, rows: int) -> None:
        """Makes the first `rows` of a bucket safe to touch. The bucket moves to this host but still has another owner;
        anything that this arena holds of it becomes invalid (FILLED 0). May be called again with more rows. Raises
        ArenaFullError, and ProtocolError for an owned bucket."""
        if self.owns(table, bucket):
            raise ProtocolError(f"bucket {bucket} of table {table} is owned by this process: no rows are copied in")
        announce(self._arena.header(table, bucket), index.FILLED, 0)
        self._make_room(table, bucket, rows)

    def end_move(self, table: int, bucket: int, ids: Int64, seen: npt.NDArray[np.uint32], heat: int) -> None:
        """Adopts a moved bucket whose rows are all written. ids int64 [rows] and seen uint32 [rows]: of a dynamic
        table; heat: its count of requested keys. Raises ArenaFullError."""
        self.adopt([(table, bucket)], initialise=False)
        if table in self._tables:
            self._tables[table].restore_ids(bucket, ids, seen)
        else:
            self._note_filled(table, bucket)
        self._arena.header(table, bucket)[index.HEAT] = heat

    def forget(self, table: int, bucket: int) -> None:
        """Frees the memory of a bucket that is now on another host, or whose rows are out of date. Raises ProtocolError
        for an owned bucket."""
        if self.owns(table, bucket):
            raise ProtocolError(f"bucket {bucket} of table {table} is owned by this process: it is not freed")
        free_bucket(self._arena, table, bucket)

    def _block(
        self,
        given: dict[tuple[str, int], Block],
        table: int,
        bucket: int,
        kind: str,
        owner: int,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
    ) -> Block:
        where = f"table {self._arena.model.tables[table].name!r}, bucket {bucket}, block {kind} {owner}"
        array = given.get((kind, owner))
        if array is None:
            raise CheckpointError(f"{where} is missing")
        if kind == "rows" and {array.dtype, dtype} == set(_PRECISIONS):
            saved, wanted = _PRECISIONS[array.dtype], _PRECISIONS[dtype]
            name = self._arena.model.tables[table].name
            raise CheckpointError(
                f"{where} holds {saved} rows, but the job has {wanted} rows",
                hint=f'set tables.{name}.precision = "{saved}"',
            )
        fits = len(array.shape) == len(shape)
        fits = fits and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
        if array.dtype != dtype or not fits:
            raise CheckpointError(f"{where} is {array.dtype} {list(array.shape)}, not {dtype} {list(shape)}")
        return array

    def copy_bytes(self) -> int:
        """The size in bytes of `snapshot_bucket` for all owned buckets."""
        bytes_per_row = {
            table.index: sum(
                e.bytes_per_element * e.padded_dim + 4 * e.state_floats_per_row
                for e in self._arena.model.embeddings_of(table.index)
            )
            + (12 if table.is_dynamic else 0)
            for table in self._arena.model.tables
        }
        return sum(
            int(self._arena.header(table, bucket)[index.ALLOCATED_ROWS]) * bytes_per_row[table]
            for table, bucket in self._owned
        )


def _as(array: Block, scalar: type[Scalar]) -> npt.NDArray[Scalar]:
    """The array in the kernel's form. Its dtype was checked before."""
    return kernel_ready(array.astype(scalar, copy=False))
