"""The source of moves: answers with the rows of a bucket that another host's PS copies, and flags rows that change.

Rules
1. The source goes on serving the bucket while it is copied. A row is flagged when it changes; the flag is cleared
   just before the row is read for an answer.
2. Ids, stamps and checksums are sent only after the source has released the bucket, because then nothing changes.
3. A request whose number is not greater than the last one of that PS incarnation is ignored: it came late or twice.
4. The changed rows of the last answer are kept; `again` in the next request flags them again.

The flags are only in memory. A successor of a killed source refuses the copy finally, and the target starts it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.ps.frames import Outgoing
from elastichost.ps.transfer.bucket_rows import ID_BYTES, BucketRows, checksum
from elastichost.ps.transfer.changed_rows import ChangedRows
from elastichost.wire.codec import Frame
from elastichost.wire.crash import crash_point
from elastichost.wire.data import BucketFetchMsg, BucketPartMsg, RetryMsg

__all__ = ["MAX_PART_BYTES", "BucketSource"]

Int64 = npt.NDArray[np.int64]

MAX_PART_BYTES = 4 << 20


@dataclass(slots=True)
class _Copy:
    """A bucket that `target` copies. sent: the changed rows of the last answer, which may get lost."""

    target: ProcessId
    sent: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))


class BucketSource:
    """Answers the fetch requests of other PS. is_owned: whether this process owns (table, bucket), so that its rows may
    still change."""

    def __init__(self, arena: Arena, changed: ChangedRows, is_owned: Callable[[int, int], bool]) -> None:
        self._rows, self._changed, self._is_owned = BucketRows(arena), changed, is_owned
        self._copies: dict[tuple[int, int], _Copy] = {}
        self._newest: dict[int, tuple[int, int]] = {}  # PS -> (incarnation, its last request)

    def handle(self, peer: bytes, sender: ProcessId, message: BucketFetchMsg) -> list[Outgoing]:
        """The answer; none for an old request. Raises ProtocolError for a bucket or row that does not exist."""
        if not self._rows.is_bucket(message.table, message.bucket) or message.start < 0:
            raise ProtocolError(
                f"{sender} requests rows from {message.start} on of bucket {message.bucket} of table {message.table}, "
                "which do not exist"
            )
        if (sender.incarnation, message.request) <= self._newest.get(sender.index, (0, 0)):
            return []  # a late or repeated request: rows sent since then may have changed
        self._newest[sender.index] = (sender.incarnation, message.request)
        key = (message.table, message.bucket)
        if not self._rows.is_filled(*key):
            return [_refused(peer, message, f"bucket {key} is not here", final=False)]
        if message.what == "open":
            return [self._open(peer, sender, message)]
        copy = self._copies.get(key)
        if copy is None or copy.target != sender:
            return [_refused(peer, message, f"{sender} has not opened the copy of bucket {key} here", final=True)]
        if message.what == "check" and self._is_owned(*key):
            return [_refused(peer, message, f"bucket {key} may still change", final=False)]
        part, frames = self._part(message, copy)
        return [Outgoing(peer, part, frames)]

    def end(self, buckets: Iterable[tuple[int, int]]) -> None:
        """Ends the copies of these buckets, and stops flagging their rows."""
        for key in buckets:
            if self._copies.pop(key, None) is not None:
                self._changed.leave(*key)

    def _open(self, peer: bytes, sender: ProcessId, message: BucketFetchMsg) -> Outgoing:
        rows = self._rows.rows(message.table, message.bucket)
        self._copies[message.table, message.bucket] = _Copy(sender)
        self._changed.follow(message.table, message.bucket, rows)
        return Outgoing(peer, BucketPartMsg(message.request, rows, 0, 0, 0))

    def _part(self, message: BucketFetchMsg, copy: _Copy) -> tuple[BucketPartMsg, list[Frame]]:
        table, bucket, rows = message.table, message.bucket, self._rows.rows(message.table, message.bucket)
        stop, left, frames = min(message.stop, rows), 0, list[Frame]()
        part = slice(message.start, max(message.start, stop))
        self._require_small(message, part)
        match message.what:
            case "rows":
                self._changed.clear(table, bucket, part)
                frames += self._rows.read(table, bucket, part)
                crash_point("ps.move.source_mid_copy")
            case "changed":
                part, left, frames = self._changes(message, copy, rows)
            case "check" if self._rows.is_dynamic(table):
                frames += self._rows.ids(table, bucket, part)
        crc32 = self._rows.checksum(table, bucket, part, frames) if message.what == "check" else checksum(frames)
        heat = self._rows.heat(table, bucket)
        return BucketPartMsg(message.request, rows, part.start, part.stop, crc32, left, heat), frames

    def _require_small(self, message: BucketFetchMsg, part: slice) -> None:
        of_row = self._rows.row_bytes(message.table) + ID_BYTES
        if message.what != "changed" and (part.stop - part.start - 1) * of_row > MAX_PART_BYTES:
            raise ProtocolError(
                f"{part.stop - part.start} rows of {of_row} bytes: a part has at most {MAX_PART_BYTES} bytes"
            )

    def _changes(self, message: BucketFetchMsg, copy: _Copy, rows: int) -> tuple[slice, int, list[Frame]]:
        table, bucket = message.table, message.bucket
        if message.again:
            self._changed.mark(table, bucket, copy.sent)
        most = max(1, MAX_PART_BYTES // (self._rows.row_bytes(table) + ID_BYTES))
        most = min(most, max(1, message.stop - message.start))
        copy.sent, left = self._changed.take(table, bucket, slice(message.start, rows), most)
        stop = int(copy.sent[-1]) + 1 if left else rows
        return slice(message.start, stop), left, [copy.sent, *self._rows.read(table, bucket, copy.sent)]


def _refused(peer: bytes, message: BucketFetchMsg, reason: str, *, final: bool) -> Outgoing:
    return Outgoing(peer, RetryMsg(request=message.request, reason=reason, shard_map_epoch=0, final=final))
