"""One bucket on its way to this host: what is to be asked of the PS that has it, and what is done with the answers.

    opening -> rows -> changes -> copied -> last changes -> checking -> whole
                                                            checking <-> mending

Until `copied` the bucket is in use where it is, and what changes is fetched again, until little is left. Then it waits
for the hand-over (`freeze`): nothing changes any more, and the rest is fetched. Whole is what has the same checksum on
both hosts, part by part; ids and stamps come with these. Rows are written to where they will stay.
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

PART_BYTES = 1 << 20  # a PS that has a bucket serves its workers between two parts
MOST_PASSES = 4  # through the changed rows while the bucket is in use
FEW_CHANGES = 0.02  # of the rows: the rest can wait for the hand-over
MOST_MENDED = 8  # parts that differed in a row: then the whole bucket is copied anew


class CopyStage(StrEnum):
    OPENING = "opening"
    ROWS = "rows"
    CHANGES = "changes"
    COPIED = "copied"
    LAST_CHANGES = "last changes"
    CHECKING = "checking"
    MENDING = "mending"
    WHOLE = "whole"


TRANSITIONS: dict[tuple[CopyStage, str], CopyStage] = {
    # the other PS notes from now on which rows change
    (CopyStage.OPENING, "opened"): CopyStage.ROWS,
    (CopyStage.ROWS, "all rows"): CopyStage.CHANGES,
    # few rows change from one pass to the next, or enough passes were made
    (CopyStage.CHANGES, "calm"): CopyStage.COPIED,
    # it is nobody's now, and does not change any more
    (CopyStage.COPIED, "frozen"): CopyStage.LAST_CHANGES,
    (CopyStage.LAST_CHANGES, "none left"): CopyStage.CHECKING,
    (CopyStage.CHECKING, "differs"): CopyStage.MENDING,
    (CopyStage.MENDING, "mended"): CopyStage.CHECKING,
    (CopyStage.CHECKING, "all equal"): CopyStage.WHOLE,
}


class Store(Protocol):
    """`RowStore`, as far as a copy needs it."""

    def begin_move(self, table: int, bucket: int, rows: int) -> None: ...

    def end_move(self, table: int, bucket: int, ids: Int64, seen: UInt32, heat: int) -> None: ...


class BucketCopy:
    """One bucket, from one incarnation of the PS that has it."""

    def __init__(self, rows: BucketRows, store: Store, table: int, bucket: int) -> None:
        self.table, self.bucket = table, bucket
        self._rows, self._store = rows, store
        self._of_part = max(1, PART_BYTES // (rows.row_bytes(table) + ID_BYTES))
        self.bytes = 0  # fetched so far
        self.mended = 0  # parts that differed when all was there
        self.is_frozen = False
        self._again = False
        self.begin_anew()

    def begin_anew(self) -> None:
        """All that was fetched counts for nothing."""
        self.stage = CopyStage.OPENING
        self._count = self._room = self._at = 0  # rows of the bucket, safe to touch here, where the next part begins
        self._passes = self._changed = self._in_a_row = self._heat = 0
        self._ids, self._seen = np.zeros(0, np.int64), np.zeros(0, np.uint32)

    @property
    def is_copied(self) -> bool:
        """Nothing is left to do before the hand-over."""
        return self.stage not in (CopyStage.OPENING, CopyStage.ROWS, CopyStage.CHANGES)

    @property
    def is_whole(self) -> bool:
        return self.stage == CopyStage.WHOLE

    def freeze(self) -> None:
        """The bucket is nobody's now: it does not change any more."""
        self.is_frozen = True
        if self.stage == CopyStage.COPIED:
            self._move("frozen")

    @property
    def has_to_ask(self) -> bool:
        """Something is to be fetched now."""
        return self.stage not in (CopyStage.COPIED, CopyStage.WHOLE)

    def ask(self, request: int) -> BucketFetchMsg:
        """What is to be fetched next. Call it when there is something."""
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
        """The answer never came, or was of no use."""
        self._again = True

    def take(self, fetch: BucketFetchMsg, part: BucketPartMsg, frames: Sequence[memoryview]) -> None:
        """The answer to it. Raises ProtocolError for one that is damaged, ArenaFullError."""
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
        """It is whole: this process owns it. Raises ArenaFullError."""
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
        """Those that were made since the beginning count as changed."""
        if self._at >= self._count:
            self._at = self._passes = self._changed = 0
            self._move("all rows")

    def _take_changes(self, part: BucketPartMsg, frames: Sequence[memoryview]) -> None:
        if not frames or frames[0].nbytes % 8:
            raise ProtocolError(f"changed rows of bucket {self.bucket} of table {self.table} came without numbers")
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
        """Those of a part of a dynamic table."""
        if not self._rows.is_dynamic(self.table):
            return None
        if self._at == 0:
            self._count = part.rows
            self._ids, self._seen = np.zeros(part.rows, np.int64), np.zeros(part.rows, np.uint32)
        rows, count = slice(part.start, part.stop), part.stop - part.start
        if part.rows != self._count or [frame.nbytes for frame in frames] != [8 * count, 4 * count]:
            raise ProtocolError(f"ids {part.start} to {part.stop} of bucket {self.bucket} of table {self.table} differ")
        self._ids[rows] = np.frombuffer(frames[0], np.int64)
        self._seen[rows] = np.frombuffer(frames[1], np.uint32)
        return self._ids[rows], self._seen[rows]

    def _compare(self, part: BucketPartMsg, frames: Sequence[memoryview]) -> None:
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
