"""The target of moves: fetches buckets from PS of other hosts while it serves its own buckets.

Rules
1. Only the newest CopyBucketsMsg counts. Its buckets are fetched; copies of other buckets, or from other incarnations,
   are dropped.
2. Each request has a new, greater number. A request without an answer in time, and one whose answer is damaged, is
   repeated under another number, so a late answer is never taken for the newest one.
3. To one source, one request is outstanding while workers use the bucket, up to four when they wait for it (frozen).
4. Nothing of a copy counts before the bucket is adopted (`complete`): until then it belongs to the source.

A kill of the source: the supervisor names its successor's incarnation in a new CopyBucketsMsg, and the copy starts
again. A kill of the target: its successor starts again too; the memory of the half copied bucket has FILLED 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from elastichost.errors import ArenaFullError, ElastichostError, ProtocolError
from elastichost.ps.transfer.bucket_copy import BucketCopy, Store
from elastichost.ps.transfer.bucket_rows import BucketRows
from elastichost.wire.codec import Envelope
from elastichost.wire.control import CopiedMsg
from elastichost.wire.data import BucketFetchMsg, BucketPartMsg, DataMessage, RetryMsg
from elastichost.wire.facts import BucketMove, ServerAddress
from elastichost.wire.sockets import DataClient

__all__ = ["BucketReceiver"]

ANSWER_TIMEOUT_S = 2.0
REFUSED_WAIT_S = 0.02
MOST_AT_ONCE = 4  # requests to one PS at a time, each about another bucket
MOST_DAMAGED = 100  # damaged answers in a row that are tolerated; more are a permanent fault

Key = tuple[int, int]  # (table, bucket)
Connect = Callable[[ServerAddress, str], DataClient]


class _Conversation:
    """The exchange with one incarnation of one source, about the buckets that come from it. numbers: request numbers,
    growing."""

    def __init__(self, client: DataClient, numbers: Iterator[int]) -> None:
        self.client, self._numbers = client, numbers
        self.copies: dict[Key, BucketCopy] = {}
        self._asked: dict[int, tuple[BucketCopy, BucketFetchMsg, float]] = {}  # request -> copy, message, time in s
        self._not_before_s = 0.0
        self._damaged = 0

    def drop(self, key: Key) -> None:
        """Drops the copy of this bucket. An answer about it that comes later is ignored."""
        copy = self.copies.pop(key)
        self._asked = {request: asked for request, asked in self._asked.items() if asked[0] is not copy}

    def turn(self, now_s: float) -> None:
        """Takes the answers that came and sends the next requests. Raises ProtocolError, ArenaFullError."""
        while (envelope := self.client.receive()) is not None:
            self._take(envelope, now_s)
            self._ask(now_s)
        for request, (copy, _, asked_s) in list(self._asked.items()):
            if now_s - asked_s > ANSWER_TIMEOUT_S:
                del self._asked[request]
                copy.fail()
        self._ask(now_s)

    def _ask(self, now_s: float) -> None:
        """Sends requests: one at a time while workers use the buckets, up to MOST_AT_ONCE when they wait for them."""
        if now_s < self._not_before_s:
            return
        under_way = [copy for copy, _, _ in self._asked.values()]
        for copy in self.copies.values():
            if len(under_way) >= (MOST_AT_ONCE if copy.is_frozen else 1):
                return
            if copy in under_way:
                continue
            if copy.has_to_ask:
                fetch = copy.ask(next(self._numbers))
                self._asked[fetch.request] = (copy, fetch, now_s)
                self.client.send(fetch)
                under_way.append(copy)

    def _take(self, envelope: Envelope[DataMessage], now_s: float) -> None:
        message = envelope.message
        asked = self._asked.pop(message.request, None)
        if asked is None:
            return  # an answer to a request that was dropped
        copy, fetch, _ = asked
        match message:
            case RetryMsg(final=final):
                self._not_before_s = now_s + REFUSED_WAIT_S
                copy.fail()
                if final:
                    copy.begin_anew()
            case BucketPartMsg() as part:
                self._take_part(copy, fetch, part, envelope.frames)
            case other:
                raise ProtocolError(f"{envelope.sender} answered a BucketFetchMsg with {type(other).__name__}")

    def _take_part(
        self, copy: BucketCopy, fetch: BucketFetchMsg, part: BucketPartMsg, frames: Sequence[memoryview]
    ) -> None:
        try:
            copy.take(fetch, part, frames)
        except ProtocolError as error:
            self._damaged += 1
            if self._damaged > MOST_DAMAGED:
                raise
            print(f"requesting a damaged part again: {error}", flush=True)
            copy.fail()
        else:
            self._damaged = 0


class BucketReceiver:
    """Fetches the buckets that move to this PS. connect: opens a connection to a PS, under a channel name."""

    def __init__(self, rows: BucketRows, store: Store, connect: Connect) -> None:
        self._rows, self._store, self._connect = rows, store, connect
        self._lines: dict[ServerAddress, _Conversation] = {}
        self._frozen: set[Key] = set()  # released by their source: they have no owner and do not change
        self._channels = 0
        self._numbers = itertools.count(1)  # shared by all lines: a source compares with the last number it received
        self._copy = self._told = 0  # numbers of the newest CopyBucketsMsg and of the newest one that was answered
        self._wanted: frozenset[Key] = frozenset()

    @property
    def clients(self) -> tuple[DataClient, ...]:
        """The connections to wait on. Their tuple differs after a change."""
        return tuple(line.client for line in self._lines.values())

    @property
    def fetches(self) -> bool:
        """Whether `turn` has something to do."""
        return bool(self._lines)

    def copy(self, number: int, moves: Iterable[BucketMove]) -> None:
        """Takes a CopyBucketsMsg with a greater number: exactly these buckets are fetched. Copies from the same
        incarnations go on; all others are dropped."""
        if number <= self._copy:
            return
        wanted = {(move.table, move.bucket): move.source for move in moves}
        self._copy, self._wanted = number, frozenset(wanted)
        for source, line in list(self._lines.items()):
            for key in [key for key in line.copies if wanted.get(key) != source]:
                line.drop(key)
            self._close_idle(source)
        for (table, bucket), source in wanted.items():
            line = self._lines.get(source) or self._open(source)
            if (table, bucket) not in line.copies:
                copy = line.copies[table, bucket] = BucketCopy(self._rows, self._store, table, bucket)
                if (table, bucket) in self._frozen:
                    copy.freeze()

    def _open(self, source: ServerAddress) -> _Conversation:
        """Opens a line under a new channel name: an old connection of the same name may still exist."""
        self._channels += 1
        line = self._lines[source] = _Conversation(self._connect(source, f"move{self._channels}"), self._numbers)
        return line

    def _close_idle(self, source: ServerAddress) -> None:
        if not self._lines[source].copies:
            self._lines.pop(source).client.close()

    def freeze(self, buckets: Iterable[Key]) -> None:
        """Their source has released these buckets, so they do not change any more: the rest can be fetched."""
        self._frozen.update(buckets)
        for copy in self._copies():
            if (copy.table, copy.bucket) in self._frozen:
                copy.freeze()

    def turn(self, now_s: float) -> CopiedMsg | None:
        """Goes on fetching. Returns the answer to CopyBucketsMsg when all buckets are copied, once; otherwise None.
        Raises ArenaFullError, ProtocolError."""
        for line in list(self._lines.values()):
            line.turn(now_s)
        copies = self._copies()
        if self._told == self._copy or not self._wanted or not all(copy.is_copied for copy in copies):
            return None
        self._told = self._copy
        return CopiedMsg(self._copy, sum(copy.bytes for copy in copies))

    def fail(self, error: ElastichostError) -> CopiedMsg:
        """Stops fetching because of this error. Returns the answer to CopyBucketsMsg. The memory of the fetched rows is
        not freed here."""
        for source in list(self._lines):
            self._lines.pop(source).client.close()
        self._told, self._wanted = self._copy, frozenset()
        is_full = isinstance(error, ArenaFullError)
        return CopiedMsg(self._copy, 0, f"{type(error).__name__}: {error.message}", is_full=is_full)

    def are_whole(self, buckets: Collection[Key]) -> bool:
        """Whether all these buckets are whole, so that they can be adopted."""
        return set(buckets) <= {(copy.table, copy.bucket) for copy in self._copies() if copy.is_whole}

    def complete(self, buckets: Collection[Key]) -> None:
        """Adopts these whole buckets. When it raises ArenaFullError, some of them may be adopted already."""
        for copy in self._copies():
            if (copy.table, copy.bucket) in buckets:
                copy.complete()
                if copy.mended:
                    where = f"bucket {copy.bucket} of table {copy.table}"
                    print(f"{where}: {copy.mended} parts differed after the copy and were fetched again", flush=True)
        self.drop(buckets)

    def drop(self, buckets: Iterable[Key]) -> None:
        """Drops these buckets: they will not move here, or they have been adopted."""
        gone = set(buckets)
        self._frozen -= gone
        self._wanted -= gone
        for source, line in list(self._lines.items()):
            for key in gone & set(line.copies):
                line.drop(key)
            self._close_idle(source)

    def close(self) -> None:
        for line in self._lines.values():
            line.client.close()

    def _copies(self) -> list[BucketCopy]:
        return [copy for line in self._lines.values() for copy in line.copies.values()]
