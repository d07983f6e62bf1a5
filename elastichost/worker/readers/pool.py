"""The worker's end of its readers: orders what its leases need, and takes the batches in the order of the leases.

Two threads use it: the one that trains orders and withdraws, the one that reads ahead takes batches. Only the second
one accepts readers, reads messages, and notices that a reader is gone: it does so for each batch, and while it waits
for one. Nothing is lost in between, because a kill of a reader changes nothing that this process holds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from elastichost.datasets.api import DatasetDescription, Reader, SampleBatch, Unit
from elastichost.datasets.sources.control import InputControl
from elastichost.errors import ProtocolError
from elastichost.wire.facts import InputKnobs
from elastichost.worker.readers.connected import ConnectedReader
from elastichost.worker.readers.failures import error_from
from elastichost.worker.readers.link import LinkLostError, listen, wait_ready
from elastichost.worker.readers.messages import FromWorker, OrderMsg, TuneMsg, WithdrawMsg
from elastichost.worker.readers.orders import OrderBook, ReadingOrder
from elastichost.worker.readers.records import Bytes, Kind, note_of, read_batch, read_record

__all__ = ["ReaderPool", "share_of"]

WAIT_S = 1.0  # longest single wait; a message ends it earlier


def share_of(knobs: InputKnobs, readers: int) -> InputKnobs:
    """The knobs of each of a worker's readers: connections, threads and bytes of the worker are divided among them."""
    count = max(1, readers)
    return msgspec.structs.replace(
        knobs,
        connections=max(1, knobs.connections // count),
        decode_threads=max(1, knobs.decode_threads // count),
        prefetch_bytes=knobs.prefetch_bytes // count,
    )


class ReaderPool:
    """A `Reader` whose batches are read by other processes, in the order in which they were ordered.

    directory: of the run's sockets. worker: index of this worker. described: describes the data. make_reader: makes a
    reader for this process, which reads a batch only when a reader process was lost with it."""

    def __init__(
        self,
        directory: str,
        worker: int,
        described: Reader,
        make_reader: Callable[[], Reader],
        control: InputControl,
    ) -> None:
        self._worker, self._described, self._make_reader, self._control = worker, described, make_reader, control
        self._lock = threading.Lock()
        self._book = OrderBook()
        self._connected: dict[int, ConnectedReader] = {}
        self._gone: set[int] = set()  # lost readers of the first order, of which there may be records
        self._joined = 0  # readers that have connected so far
        self._number = 0  # of the order that the reading thread takes now
        self._closed = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._listening = listen(directory, worker)
        control.connections = self
        control.when_tuned(self._tuned)

    def describe(self) -> DatasetDescription:
        """The description of the dataset, read by this process."""
        return self._described.describe()

    # --- the thread that trains -----------------------------------------------------------------------------

    def order(
        self, unit: Unit, start: int, stop: int, batch_size: int, shuffle_seed: int | None, min_samples: int
    ) -> int:
        """Orders positions [start, stop) of a unit behind all others. Returns the number of the order."""
        with self._lock:
            order = self._book.add(unit.index, start, stop, batch_size, shuffle_seed, min_samples)
            self._send_orders()
            return order.number

    def withdraw(self) -> None:
        """Drops all orders; `batches` of one of them ends."""
        with self._lock:
            self._book.withdraw()
            self._send_all(WithdrawMsg(self._book.round))
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Ends `batches`, and all connections."""
        with self._lock:
            self._closed.set()
            self._listening.close()
            for reader in self._connected.values():
                reader.close()
            self._connected.clear()
        os.eventfd_write(self._wake, 1)  # it stays open: the other thread may wait for it

    def _tuned(self) -> None:
        with self._lock:
            self._tell_knobs()

    # --- the thread that reads ahead ------------------------------------------------------------------------

    def begin(self, number: int) -> None:
        """The next call of `batches` is for this order."""
        self._number = number

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> Iterator[SampleBatch]:
        """The batches of the order named by `begin`, which has these arguments; it ends early when the order is
        withdrawn. Raises what a reader raised."""
        number = self._number
        while True:
            self._look(0.0)
            if (order := self._first(number)) is None:
                return
            reader, record = None, None
            if self._book.is_suspected:
                batch = self._read_here(unit, order)
            else:
                reader, record = self._next(number)
                if record is None:
                    began_s = time.perf_counter()
                    self._look(WAIT_S)
                    self._control.decode.wait_here(empty_s=time.perf_counter() - began_s)
                    continue
                batch = self._read(record)
            if not self._took(number, reader, batch) or batch is None:
                return
            yield batch

    def _first(self, number: int) -> ReadingOrder | None:
        """The order with this number, which is the first one; None: it is withdrawn."""
        with self._lock:
            first = self._book.first
            if self._closed.is_set() or first is None or first[0].number != number:
                return None
            return first[0]

    def _next(self, number: int) -> tuple[int | None, Bytes | None]:
        """The reader of the first order, and its next record; None: it is not there yet."""
        with self._lock:
            first = self._book.first
            if self._closed.is_set() or first is None or first[1] is None:
                return None, None
            reader = first[1]
            record = self._connected[reader].next(self._book.round)
            if record is None and reader in self._gone:
                self._lose(reader)
                return None, None
            if record is not None and read_record(record).order != first[0].number:
                raise ProtocolError(
                    f"a reader of worker-{self._worker} published order {read_record(record).order}, not {number}"
                )
            return reader, record

    def _read_here(self, unit: Unit, order: ReadingOrder) -> SampleBatch | None:
        """The next batch of an order, read by this process. The unit that it decodes is not kept."""
        if order.start == order.stop:
            return None
        how = (order.batch_size, order.shuffle_seed, order.min_samples)
        return next(iter(self._make_reader().batches(unit, order.start, order.stop, *how)), None)

    def _read(self, record: Bytes) -> SampleBatch | None:
        """The batch of a record, copied: its place in the ring is free afterwards. None: the order has ended."""
        match read_record(record).kind:
            case Kind.BATCH:
                return read_batch(record)
            case Kind.FAILED:
                raise error_from(note_of(record), f"a reader of worker-{self._worker}")
            case _:
                return None

    def _took(self, number: int, reader: int | None, batch: SampleBatch | None) -> bool:
        """Notes that the next batch was taken, from this reader (None: read here). False: its order was withdrawn
        meanwhile."""
        with self._lock:
            first = self._book.first
            if self._closed.is_set() or first is None or first[0].number != number:
                return False
            if batch is None:
                self._book.ended()
            else:
                self._book.took(batch.stop)
            if reader is not None:
                self._connected[reader].take()
            return True

    def _look(self, timeout_s: float) -> None:
        """Accepts readers, reads their messages, and notices those that are gone. Waits for news at most
        `timeout_s`."""
        with self._lock:
            if self._closed.is_set():
                return
            interests = [reader.link.interest for reader in self._living().values()]
            others = self._listening.fileno(), self._wake
        wait_ready(interests, others, timeout_s)
        with self._lock:
            if self._closed.is_set():
                return
            self._clear_wake()
            self._accept()
            for number, reader in self._living().items():
                try:
                    reader.receive(self._control)
                except LinkLostError:
                    self._gone.add(number)
            for number in sorted(self._gone):
                first = self._book.first
                if first is None or first[1] != number:  # else what it has published of the first order is taken before
                    self._lose(number)
            self._send_orders()

    def _clear_wake(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            self._joined += 1
            self._connected[self._joined] = ConnectedReader(connection)
            self._book.joined(self._joined)
            self._tell_knobs()

    # --- with the lock held ---------------------------------------------------------------------------------

    def _living(self) -> dict[int, ConnectedReader]:
        return {number: reader for number, reader in self._connected.items() if number not in self._gone}

    def _lose(self, number: int) -> None:
        """A reader is gone: what it and the others have not delivered is ordered again."""
        self._connected.pop(number).close()
        self._gone.discard(number)
        self._book.lost(number)
        self._send_all(WithdrawMsg(self._book.round))
        self._tell_knobs()
        self._send_orders()

    def _send_orders(self) -> None:
        for reader, order in self._book.send():
            self._send(reader, _message(order, self._book.round))

    def _tell_knobs(self) -> None:
        self._control.readers = len(self._connected)
        self._send_all(TuneMsg(share_of(self._control.knobs, len(self._connected)), self._control.cache_bytes))

    def _send_all(self, message: FromWorker) -> None:
        for reader in self._connected:
            self._send(reader, message)

    def _send(self, reader: int, message: FromWorker) -> None:
        """Sends a message. A reader that is gone does not get it: the reading thread notices its loss."""
        try:
            self._connected[reader].send(message)
        except LinkLostError:
            return


def _message(order: ReadingOrder, of_round: int) -> OrderMsg:
    return OrderMsg(
        of_round,
        order.number,
        order.unit,
        order.start,
        order.stop,
        order.batch_size,
        order.shuffle_seed,
        order.min_samples,
    )
