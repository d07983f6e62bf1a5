"""The part of a PS in moves between hosts, both as source and as target of buckets.

Order of a move, seen from here: Measure (source) -> Copy (target fetches; the source goes on serving) -> the shard map
of the hand-over: the source releases, the target fetches the last changes, compares checksums and adopts (`take_over`)
-> Forget (source frees the memory). Keep instead of Forget ends an aborted move. The source keeps all rows until
Forget, which the supervisor sends only after the move is committed in its journal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from elastichost.arena.arena import Arena
from elastichost.errors import ArenaFullError, ProtocolError
from elastichost.ps.applier import RowApplier
from elastichost.ps.frames import Outgoing
from elastichost.ps.rows.store import RowStore
from elastichost.ps.transfer.bucket_rows import BucketRows
from elastichost.ps.transfer.bucket_source import BucketSource
from elastichost.ps.transfer.changed_rows import ChangedRows
from elastichost.ps.transfer.mover import BucketReceiver
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope
from elastichost.wire.control import (
    BucketsMeasuredMsg,
    ControlMessage,
    CopyBucketsMsg,
    ForgetBucketsMsg,
    ForgottenMsg,
    KeepBucketsMsg,
    MeasureBucketsMsg,
)
from elastichost.wire.crash import crash_point
from elastichost.wire.data import BucketFetchMsg, DataMessage
from elastichost.wire.sockets import Caller, DataClient

__all__ = ["BucketTransfers", "MoveOrder"]

MoveOrder = MeasureBucketsMsg | CopyBucketsMsg | ForgetBucketsMsg | KeepBucketsMsg
Key = tuple[int, int]  # (table, bucket)


class BucketTransfers:
    """The moves of one PS. send: sends a control message to the supervisor."""

    def __init__(
        self,
        arguments: ChildArguments,
        arena: Arena,
        store: RowStore,
        applier: RowApplier,
        send: Callable[[ControlMessage], None],
    ) -> None:
        caller = Caller(arguments.job_id, arguments.process, arguments.host, arguments.keys)
        changed = ChangedRows(arena.layout)
        applier.on_changed, store.on_made = changed.changed, changed.made
        self._rows, self._store, self._send = BucketRows(arena), store, send
        self._source = BucketSource(arena, changed, store.owns)
        self._mover = BucketReceiver(self._rows, store, caller.connect)
        self._awaited: Collection[Key] = ()
        self._to_forget: dict[int, set[Key]] = {}  # request -> buckets to free when this process has released them

    @property
    def clients(self) -> tuple[DataClient, ...]:
        """The connections to wait on."""
        return self._mover.clients

    def close(self) -> None:
        self._mover.close()

    # --- other PS -------------------------------------------------------------------------------------------

    def answer(self, peer: bytes, envelope: Envelope[DataMessage]) -> list[Outgoing]:
        """The answer to a request of another PS. Raises ProtocolError for any message except BucketFetchMsg."""
        sender, message = envelope.sender, envelope.message
        if sender is None or not isinstance(message, BucketFetchMsg):
            raise ProtocolError(f"{sender} sent a {type(message).__name__}: a PS may only fetch buckets from another")
        return self._source.handle(peer, sender, message)

    def turn(self, now_s: float) -> bool:
        """Goes on fetching buckets. True: the buckets that `take_over` waits for are whole now."""
        if not self._mover.fetches:
            return False
        try:
            copied = self._mover.turn(now_s)
        except (ArenaFullError, ProtocolError) as error:
            copied = self._mover.fail(error)
        if copied is not None:
            self._send(copied)
        if not self._awaited or not self._mover.are_whole(self._awaited):
            return False
        self._awaited = ()
        return True

    # --- the supervisor -------------------------------------------------------------------------------------

    def handle(self, order: MoveOrder) -> None:
        """Handles an order of the supervisor. Raises ProtocolError for a bucket that does not exist."""
        match order:
            case MeasureBucketsMsg(request=request, buckets=buckets):
                self._check(buckets)
                sizes = tuple(self._rows.bucket_bytes(table, bucket) for table, bucket in buckets)
                self._send(BucketsMeasuredMsg(request, sizes))
            case CopyBucketsMsg(copy=number, moves=moves):
                self._check([(move.table, move.bucket) for move in moves])
                # An owned bucket has moved here already; the order is repeated because its source was replaced.
                self._mover.copy(number, [move for move in moves if not self._store.owns(move.table, move.bucket)])
            case KeepBucketsMsg(buckets=buckets):
                self._source.end(buckets)
            case ForgetBucketsMsg(request=request, buckets=buckets):
                self._check(buckets)
                self._to_forget[request] = set(buckets)
                self.forget()

    def _check(self, buckets: Iterable[Key]) -> None:
        for table, bucket in buckets:
            if not self._rows.is_bucket(table, bucket):
                raise ProtocolError(f"the supervisor names bucket {bucket} of table {table}, which does not exist")

    def forget(self) -> None:
        """Frees the buckets of Forget orders that this process does not own any more. Call it after buckets were
        released."""
        for request, buckets in list(self._to_forget.items()):
            self._mover.drop(buckets)
            if any(self._store.owns(*key) for key in buckets):
                continue
            crash_point("ps.move.source_before_forget")
            self._source.end(buckets)
            for table, bucket in sorted(buckets):
                self._store.forget(table, bucket)
            del self._to_forget[request]
            self._send(ForgottenMsg(request))

    def take_over(self, buckets: Collection[Key]) -> bool:
        """Adopts buckets that move to this process by the present hand-over.

        False: they are not whole yet, and `turn` returns True when they are; or there is no memory for them, and the
        supervisor, which receives the error, aborts the move.
        """
        if not self._mover.are_whole(buckets):
            self._awaited = buckets
            self._mover.freeze(buckets)
            return False
        self._awaited = ()
        try:
            self._mover.complete(buckets)
        except ArenaFullError as error:
            self._store.release(buckets)
            self._send(self._mover.fail(error))
            return False
        if buckets:
            crash_point("ps.move.target_before_ready")
        return True
