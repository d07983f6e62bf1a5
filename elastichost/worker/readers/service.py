"""The reader's end: reads what its worker orders and publishes it, and connects to the successor of a lost worker.

The reader keeps nothing that a worker needs: when the connection ends, it drops the orders and the rings, and keeps
only the unit that it has decoded. A successor orders what the ledger has given back.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator

from elastichost.datasets.api import Reader, SampleBatch, Unit
from elastichost.datasets.sources.control import InputControl
from elastichost.wire.facts import HEARTBEAT_S, StepSample
from elastichost.worker.readers.failures import error_bytes
from elastichost.worker.readers.link import LinkLostError, ReaderLink, connect, wait_ready
from elastichost.worker.readers.messages import FromWorker, OrderMsg, StagesMsg, TuneMsg, WithdrawMsg
from elastichost.worker.readers.publisher import Publisher
from elastichost.worker.readers.records import Kind, Record

__all__ = ["ReadingService"]

CONNECT_AGAIN_S = 0.02  # between two attempts, while the worker does not listen yet
WAIT_S = 1.0  # longest single wait; a message ends it earlier


class _ClosedError(Exception):
    """The reader is to end."""


class ReadingService:
    """Serves one worker at a time, in a thread of its own (`run`). directory: of the run's sockets. worker: index of
    the worker. control: the knobs and meters of `reader`. state: what it does, in one word."""

    def __init__(
        self, directory: str, worker: int, reader: Reader, units: tuple[Unit, ...], control: InputControl
    ) -> None:
        self._directory, self._worker = directory, worker
        self._reader, self._units, self._control = reader, units, control
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._sample_s = time.monotonic()
        self._batches, self._samples, self._waited_s = 0, 0, 0.0
        self.state = "waiting"

    def run(self) -> None:
        """Serves the worker, and its successors, until `close`."""
        while not self._closing.is_set():
            connection = connect(self._directory, self._worker)
            if connection is None:
                self.count(waited_s=CONNECT_AGAIN_S)
                self._closing.wait(CONNECT_AGAIN_S)
                continue
            link: ReaderLink[FromWorker] = ReaderLink(connection, FromWorker)
            try:
                _Session(self, link).serve()
            except (LinkLostError, _ClosedError):
                continue
            finally:
                self.state = "waiting"
                link.close()
                if self._control.ahead is not None:
                    self._control.ahead.forget()

    def close(self) -> None:
        """Ends `run` at the next batch."""
        self._closing.set()
        os.eventfd_write(self._wake, 1)

    def take_sample(self) -> StepSample:
        """What was read since the last call."""
        with self._lock:
            now_s = time.monotonic()
            sample = StepSample(
                steps=self._batches,
                samples=self._samples,
                seconds=now_s - self._sample_s,
                wait_input_s=self._waited_s,
                taken_s=now_s,
            )
            self._sample_s, self._batches, self._samples, self._waited_s = now_s, 0, 0, 0.0
            return sample

    # --- for the session ------------------------------------------------------------------------------------

    def count(self, samples: int = 0, batches: int = 0, waited_s: float = 0.0) -> None:
        """Adds to the next sample. waited_s: for orders or for room."""
        with self._lock:
            self._batches, self._samples = self._batches + batches, self._samples + samples
            self._waited_s += waited_s

    def wait(self, link: ReaderLink[FromWorker], timeout_s: float) -> None:
        """Waits for a message of the worker. Raises _ClosedError when the reader is to end."""
        wait_ready((link.interest,), (self._wake,), timeout_s)
        if self._closing.is_set():
            raise _ClosedError

    def batches(self, order: OrderMsg) -> Iterator[SampleBatch]:
        """The batches of an order."""
        with self._control.decode.span():
            batches = iter(
                self._reader.batches(
                    self._units[order.unit],
                    order.start,
                    order.stop,
                    order.batch_size,
                    order.shuffle_seed,
                    order.min_samples,
                )
            )
        while True:
            with self._control.decode.span(items=1):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def expect(self, order: OrderMsg) -> None:
        """Lets the reader decode the unit of an order ahead."""
        if self._control.ahead is not None:
            self._control.ahead.expect(self._units[order.unit])

    def withdraw(self) -> None:
        """Drops what was expected."""
        if self._control.ahead is not None:
            self._control.ahead.forget()

    def tune(self, message: TuneMsg) -> None:
        """Takes new knobs."""
        self._control.tune(message.knobs, message.cache_bytes)

    def note_full(self, seconds: float) -> None:
        """Notes the time that this thread has waited for room in a ring."""
        with self._control.decode.span() as span:
            span.full_s += seconds
        self.count(waited_s=seconds)

    def stages(self) -> StagesMsg:
        """What the stages did since the last call."""
        stages = tuple(stage for stage in self._control.take_stages(0) if stage.stage in ("source", "decode"))
        return StagesMsg(stages, tuple(self._control.take_troubles()))


class _Session:
    """One connection to one worker."""

    def __init__(self, service: ReadingService, link: ReaderLink[FromWorker]) -> None:
        self._service, self._link = service, link
        self._orders: deque[OrderMsg] = deque()
        self._round = 0
        self._reading = 0  # round of the order that is being read
        self._publisher = Publisher(link, self._wait)
        self._told_s = time.monotonic()

    def serve(self) -> None:
        """Reads orders until the connection ends. Raises LinkLostError, _ClosedError."""
        while True:
            self._take()
            if self._orders:
                self._service.state = "reading"
                self._read(self._orders.popleft())
                continue
            self._service.state = "waiting"
            began_s = time.perf_counter()
            self._service.wait(self._link, WAIT_S)
            self._service.count(waited_s=time.perf_counter() - began_s)

    def _wait(self) -> bool:
        self._service.wait(self._link, WAIT_S)
        return self._take()

    def _take(self) -> bool:
        """Takes all messages that have arrived. False: the order that is being read is withdrawn."""
        self._service.wait(self._link, 0.0)
        while (received := self._link.receive()) is not None:
            match received[0]:
                case OrderMsg() as order:
                    self._orders.append(order)
                    self._service.expect(order)
                case WithdrawMsg(round=of_round):
                    self._round = of_round
                    self._orders = deque(order for order in self._orders if order.round >= of_round)
                    self._service.withdraw()
                case TuneMsg() as tuned:
                    self._service.tune(tuned)
                case _:
                    pass  # there is room in the ring
        self._link.flush()
        self._tell()
        return self._reading >= self._round

    def _tell(self) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= HEARTBEAT_S and not self._link.has_waiting:
            self._told_s = now_s
            self._link.send(self._service.stages())

    def _read(self, order: OrderMsg) -> None:
        self._reading = order.round
        try:
            if order.start < order.stop:
                for batch in self._service.batches(order):
                    if not self._publish(batch, order):
                        return
            self._publisher.note(_record(Kind.END, order))
        except (LinkLostError, _ClosedError):
            raise
        except Exception as error:  # noqa: BLE001 - the worker raises it, as if it had read itself
            traceback.print_exception(error, file=sys.stderr)
            self._publisher.note(_record(Kind.FAILED, order), error_bytes(error))

    def _publish(self, batch: SampleBatch, order: OrderMsg) -> bool:
        """Publishes a batch. False: the order is withdrawn."""
        before_s = self._publisher.waited_s
        is_published = self._take() and self._publisher.batch(batch, _record(Kind.BATCH, order))
        self._service.note_full(self._publisher.waited_s - before_s)
        if is_published:
            self._service.count(batch.size, 1)
        return is_published


def _record(kind: Kind, order: OrderMsg) -> Record:
    return Record(kind, order.round, order.number)
