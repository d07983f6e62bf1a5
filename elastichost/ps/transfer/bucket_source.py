"""The PS that has a bucket another host's PS copies: answers with its rows, and knows which have changed since.

It serves its bucket meanwhile. When it has let go of it nothing changes any more: then ids, stamps and checksums are
given out. A request may come late, twice, or after a later one; the numbers of requests tell.
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
    """A bucket that is being copied by `target`. `sent`: the changed rows of the last answer, which may not arrive."""

    target: ProcessId
    sent: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))


class BucketSource:
    """is_owned: whether a (table, bucket) is this process' own, so that its rows still change."""

    def __init__(self, arena: Arena, changed: ChangedRows, is_owned: Callable[[int, int], bool]) -> None:
        self._rows, self._changed, self._is_owned = BucketRows(arena), changed, is_owned
        self._copies: dict[tuple[int, int], _Copy] = {}
        self._newest: dict[int, tuple[int, int]] = {}  # PS -> (incarnation, its last request)

    def handle(self, peer: bytes, sender: ProcessId, message: BucketFetchMsg) -> list[Outgoing]:
        """The answer, if one is due. Raises ProtocolError for a request that cannot be."""
        if not self._rows.is_bucket(message.table, message.bucket) or message.start < 0:
            raise ProtocolError(f"{sender} wants rows {message.start} of bucket {message.bucket} of {message.table}")
        if (sender.incarnation, message.request) <= self._newest.get(sender.index, (0, 0)):
            return []  # late, or a second time: what was copied by then may have changed since
        self._newest[sender.index] = (sender.incarnation, message.request)
        key = (message.table, message.bucket)
        if not self._rows.is_filled(*key):
            return [_refused(peer, message, f"bucket {key} is not here", final=False)]
        if message.what == "open":
            return [self._open(peer, sender, message)]
        copy = self._copies.get(key)
        if copy is None or copy.target != sender:
            return [_refused(peer, message, f"the copying of bucket {key} by {sender} was never begun", final=True)]
        if message.what == "check" and self._is_owned(*key):
            return [_refused(peer, message, f"bucket {key} may still change", final=False)]
        part, frames = self._part(message, copy)
        return [Outgoing(peer, part, frames)]

    def end(self, buckets: Iterable[tuple[int, int]]) -> None:
        """They are not copied any more."""
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
            raise ProtocolError(f"{part.stop - part.start} rows of {of_row} bytes are no part of a bucket")

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
