"""The state machine of one bucket that is copied to this host: which part to request next, and how to use the answers.

    opening -> rows -> changes -> copied -> last changes -> checking -> whole
                                                            checking <-> mending

Rules
1. Until `copied`, and while it waits there, the source goes on updating the bucket. Rows that changed since they were
   sent are fetched again, in at most MOST_PASSES passes, until few rows change from one pass to the next.
2. After the source has released the bucket (`freeze`) nothing changes any more: the last changes are fetched.
3. The bucket is whole when every part has the same checksum on both hosts; the ids and stamps come with these parts. A
   part that differs is fetched again; after MOST_MENDED differing parts in a row the copy starts anew.
4. Only a whole bucket can be adopted (`complete`).

Rows are written to their final place in the arena; the bucket's FILLED word is 0 until `complete`. A kill of this
process at any point leaves the bucket unfilled here and intact at the source. A kill of the source ends this copy: its
successor has another incarnation and no flags of changed rows, so the copy starts anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elastichost.errors import IllegalTransitionError, ProtocolError
from elastichost.ps.transfer.bucket_rows import ID_BYTES, BucketRows, checksum
from elastichost.wire.crash import crash_point
from elastichost.wire.data import BucketFetchMsg, BucketPartMsg

__all__ = ["PART_BYTES", "TRANSITIONS", "BucketCopy", "CopyStage"]

Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]

PART_BYTES = 1 << 20  # the source serves its workers between two parts
MOST_PASSES = 4  # passes over the changed rows while the bucket is in use
FEW_CHANGES = 0.02  # share of the rows; when fewer changed in a pass, the rest is left for the hand-over
MOST_MENDED = 8  # differing parts in a row; after more the whole bucket is copied anew


class CopyStage(StrEnum):
    """The states of a copy."""

    OPENING = "opening"
    ROWS = "rows"
    CHANGES = "changes"
    COPIED = "copied"
    LAST_CHANGES = "last changes"
    CHECKING = "checking"
    MENDING = "mending"
    WHOLE = "whole"


TRANSITIONS: dict[tuple[CopyStage, str], CopyStage] = {
    # the source flags changed rows from now on
    (CopyStage.OPENING, "opened"): CopyStage.ROWS,
    (CopyStage.ROWS, "all rows"): CopyStage.CHANGES,
    # few rows changed in the last pass, or MOST_PASSES passes were made
    (CopyStage.CHANGES, "calm"): CopyStage.COPIED,
    # the source has released the bucket, so it does not change any more
    (CopyStage.COPIED, "frozen"): CopyStage.LAST_CHANGES,
    (CopyStage.LAST_CHANGES, "none left"): CopyStage.CHECKING,
    (CopyStage.CHECKING, "differs"): CopyStage.MENDING,
    (CopyStage.MENDING, "mended"): CopyStage.CHECKING,
    (CopyStage.CHECKING, "all equal"): CopyStage.WHOLE,
}


class Store(Protocol):
    """The part of `RowStore` that a copy uses."""

    def begin_move(self, table: int, bucket: int, rows: int) -> None: ...

    def end_move(self, table: int, bucket: int, ids: Int64, seen: UInt32, heat: int) -> None: ...


class BucketCopy:
    """The copy of one bucket from one incarnation of its source. mended: parts that differed after the copy."""

    def __init__(self, rows: BucketRows, store: Store, table: int, bucket: int) -> None:
        self.table, self.bucket = table, bucket
        self._rows, self._store = rows, store
        self._of_part = max(1, PART_BYTES // (rows.row_bytes(table) + ID_BYTES))
        self.bytes = 0  # fetched so far
        self.mended = 0
        self.is_frozen = False
        self._again = False
        self.begin_anew()

    def begin_anew(self) -> None:
        """Starts the copy anew; nothing that was fetched is used."""
        self.stage = CopyStage.OPENING
        self._count = self._room = self._at = 0  # rows of the bucket; rows allocated here; begin of the next part
        self._passes = self._changed = self._in_a_row = self._heat = 0
        self._ids, self._seen = np.zeros(0, np.int64), np.zeros(0, np.uint32)

    @property
    def is_copied(self) -> bool:
        """Whether the copy waits for the hand-over or is beyond it."""
        return self.stage not in (CopyStage.OPENING, CopyStage.ROWS, CopyStage.CHANGES)

    @property
    def is_whole(self) -> bool:
        return self.stage == CopyStage.WHOLE

    def freeze(self) -> None:
        """The source has released the bucket: it does not change any more."""
        self.is_frozen = True
        if self.stage == CopyStage.COPIED:
            self._move("frozen")

    @property
    def has_to_ask(self) -> bool:
        """Whether there is a next request."""
        return self.stage not in (CopyStage.COPIED, CopyStage.WHOLE)

    def ask(self, request: int) -> BucketFetchMsg:
        """The next request, under this number. Call it only when `has_to_ask`."""
        stop = self._at + self._of_part
        match self.stage:
            case CopyStage.OPENING:
                return BucketFetchMsg(request, self.table, self.bucket, "open")
            case CopyStage.ROWS | CopyStage.MENDING:
                return BucketFetchMsg(request, self.table, self.bucket, "rows", self._at, min(stop, self._count))
            case CopyStage.CHECKING:
                return BucketFetchMsg(request, self.table, self.bucket, "check", self._at, stop)
            case _:
                return BucketFetchMsg(request, self.table, self.bucket, "changed", self._at, stop, self._again)

    def fail(self) -> None:
        """The answer did not come or was not usable: the next request has `again` set."""
        self._again = True

    def take(self, fetch: BucketFetchMsg, part: BucketPartMsg, frames: Sequence[memoryview]) -> None:
        """Takes the answer to a request. Raises ProtocolError for a damaged one, ArenaFullError."""
        if fetch.what != "check" and checksum(frames) != part.crc32:
            raise ProtocolError(f"a part of bucket {self.bucket} of table {self.table} does not match its checksum")
        if part.rows > self._room or self.stage == CopyStage.OPENING:
            self._store.begin_move(self.table, self.bucket, part.rows)
            self._room = part.rows
        self.bytes += sum(frame.nbytes for frame in frames)
        self._heat = max(self._heat, part.heat)
        self._again = False
        match fetch.what:
            case "open":
                self._count, self._at = part.rows, 0
                self._move("opened")
                self._rows_done()
            case "rows":
                self._take_rows(part, frames)
            case "changed":
                self._take_changes(part, frames)
            case "check":
                self._compare(part, frames)

    def complete(self) -> None:
        """Adopts the whole bucket. Raises ArenaFullError, and IllegalTransitionError when it is not whole."""
        if not self.is_whole:
            raise IllegalTransitionError("the copy of a bucket", self.stage.value, "complete")
        self._store.end_move(self.table, self.bucket, self._ids, self._seen, self._heat)

    # --- inside ---------------------------------------------------------------------------------------------

    def _move(self, event: str) -> None:
        try:
            self.stage = TRANSITIONS[self.stage, event]
        except KeyError:
            raise IllegalTransitionError("the copy of a bucket", self.stage.value, event) from None

    def _take_rows(self, part: BucketPartMsg, frames: Sequence[memoryview]) -> None:
        self._rows.write(self.table, self.bucket, slice(part.start, part.stop), part.stop - part.start, frames)
        crash_point("ps.move.target_mid_copy")
        if self.stage == CopyStage.MENDING:
            self._move("mended")
            return
        self._at = part.stop
        self._rows_done()

    def _rows_done(self) -> None:
        """Ends the first pass when all rows have come. Rows that were made since it began are flagged as changed."""
        if self._at >= self._count:
            self._at = self._passes = self._changed = 0
            self._move("all rows")

    def _take_changes(self, part: BucketPartMsg, frames: Sequence[memoryview]) -> None:
        if not frames or frames[0].nbytes % 8:
            raise ProtocolError(f"changed rows of bucket {self.bucket} of table {self.table} came without row numbers")
        which = np.frombuffer(frames[0], np.int64)
        if len(which) and not (which.min() >= 0 and which.max() < self._room):
            raise ProtocolError(f"bucket {self.bucket} of table {self.table} has no row {which.max()}")
        self._rows.write(self.table, self.bucket, which, len(which), frames[1:])
        self._changed += len(which)
        self._at = part.stop
        if part.left:
            return
        self._passes += 1
        is_calm = self._changed <= max(self._of_part, FEW_CHANGES * part.rows) or self._passes >= MOST_PASSES
        self._at = self._changed = 0
        if self.stage == CopyStage.LAST_CHANGES:
            self._move("none left")
        elif is_calm or self.is_frozen:
            self._move("calm")
            if self.is_frozen:
                self._move("frozen")

    def _take_ids(self, part: BucketPartMsg, frames: Sequence[memoryview]) -> tuple[Int64, UInt32] | None:
        """Keeps and returns the ids and stamps of a part; None: the table is fixed. Raises ProtocolError."""
        if not self._rows.is_dynamic(self.table):
            return None
        if self._at == 0:
            self._count = part.rows
            self._ids, self._seen = np.zeros(part.rows, np.int64), np.zeros(part.rows, np.uint32)
        rows, count = slice(part.start, part.stop), part.stop - part.start
        if part.rows != self._count or [frame.nbytes for frame in frames] != [8 * count, 4 * count]:
            raise ProtocolError(
                f"ids {part.start} to {part.stop} of bucket {self.bucket} of table {self.table} do not fit its rows"
            )
        self._ids[rows] = np.frombuffer(frames[0], np.int64)
        self._seen[rows] = np.frombuffer(frames[1], np.uint32)
        return self._ids[rows], self._seen[rows]

    def _compare(self, part: BucketPartMsg, frames: Sequence[memoryview]) -> None:
        """Compares the checksum of a part on both hosts."""
        ids = self._take_ids(part, frames)
        mine = self._rows.checksum(self.table, self.bucket, slice(part.start, part.stop), ids or ())
        if mine != part.crc32:
            self.mended += 1
            self._in_a_row += 1
            if self._in_a_row > MOST_MENDED:
                self.begin_anew()
                return
            self._move("differs")
            return
        self._at, self._in_a_row = part.stop, 0
        if self._at >= self._count:
            self._move("all equal")
