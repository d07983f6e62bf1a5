"""The threads that read ahead: they turn leases into prepared batches, a bounded number ahead of the training loop."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from elastichost.batches import MIN_SAMPLES
from elastichost.datasets.api import Reader, SampleBatch, Unit
from elastichost.datasets.remote import RemoteRate, RemoteReader, batch_bytes
from elastichost.datasets.sources.control import InputControl
from elastichost.wire.facts import Lease, StageSample
from elastichost.worker.channels.channel import StoppedError

__all__ = ["PREFETCH_BATCHES", "PREFETCH_PULLED", "LeaseFinished", "Orders", "Pipeline"]

PREFETCH_BATCHES = 3
# Pulled rows become stale while they wait: with served access one batch waits while the next is being pulled.
PREFETCH_PULLED = 1

Prepared = TypeVar("Prepared")  # what `prepare` makes of a batch of samples


@dataclass(frozen=True, slots=True)
class LeaseFinished:
    """The result after the last batch of a lease. Skipped rows behind its last batch are accounted for with it."""

    lease: Lease


class Orders(Protocol):
    """A reader whose batches other processes read: it is told early what will be asked for (`worker.readers.pool`)."""

    def order(
        self, unit: Unit, start: int, stop: int, batch_size: int, shuffle_seed: int | None, min_samples: int
    ) -> int: ...

    def begin(self, number: int) -> None: ...

    def withdraw(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Read:
    """A batch that was read and is not prepared yet; None: its lease has ended. charged_bytes: of the budget."""

    samples: SampleBatch | None
    lease: Lease
    generation: int
    charged_bytes: int


class Pipeline(Generic[Prepared]):
    """Reads and prepares leases in the order of `add`; holds at most `ahead` prepared results.

    One thread reads. With `InputKnobs.prefetch_batches` = 0 it prepares each batch before it reads the next; otherwise
    so many batches may wait to be prepared, by a second thread, within the bytes of the budget. At any time at most one
    thread prepares. The number of prepared results is not a knob: their rows become stale while they wait, and PS count
    on its bound when they evict rows (`ps.rows.eviction`).

    `close` wakes the threads wherever they wait in this class: for a lease, for room in a queue, in a slowed reader. (A
    thread that waits for a pull is woken by `DirectoryHolder.stop`.) With `remote` the reader is slowed to that rate;
    the added waiting counts as reading time. control: knobs, budget and meters, shared with the reader. orders: the
    reader, if other processes read; their memory is the queue then, and no batch waits for a second thread.
    """

    def __init__(
        self,
        reader: Reader,
        units: tuple[Unit, ...],
        batch_size: int,
        prepare: Callable[[SampleBatch, Lease], Prepared],
        ahead: int = PREFETCH_BATCHES,
        remote: RemoteRate | None = None,
        control: InputControl | None = None,
        orders: Orders | None = None,
    ) -> None:
        self._ahead, self._orders = ahead, orders
        self.control = control if control is not None else InputControl()
        waiting = (self._wait, time.monotonic, self.control)
        self._reader = reader if remote is None else RemoteReader(reader, remote, *waiting)
        self._units, self._batch_size, self._prepare = units, batch_size, prepare
        self._condition = threading.Condition()
        self._leases: deque[tuple[Lease, int | None, int]] = deque()  # with the number of the order
        self._read_batches: deque[_Read] = deque()
        self._results: deque[Prepared | LeaseFinished] = deque()
        self._generation = 0
        self._reading = 0  # generation of the lease that is being read
        self._announced: Unit | None = None  # the newest unit that the reader may decode ahead
        self._working = self._preparing = False
        self._closed = False
        self._error: BaseException | None = None
        self._can_prepare = True  # False: the thread that prepares has ended with the error
        self._preparer: threading.Thread | None = None  # from the first batch that waits to be prepared
        self.control.when_tuned(self._wake)
        self._thread = threading.Thread(target=self._guarded, args=(self._run,), name="prefetch", daemon=True)
        self._thread.start()

    def add(self, lease: Lease, shuffle_seed: int | None) -> None:
        """Queues a lease. shuffle_seed: None reads its unit in order."""
        unit = self._units[lease.unit]
        with self._condition:
            order = 0
            if self._orders is not None:
                how = (self._batch_size, shuffle_seed, MIN_SAMPLES)
                order = self._orders.order(unit, lease.start, lease.stop, *how)
            self._leases.append((lease, shuffle_seed, order))
            self._condition.notify_all()
            is_new, self._announced = unit != self._announced, unit
        if is_new and self.control.ahead is not None:
            self.control.ahead.expect(unit)

    def get(self, timeout_s: float) -> Prepared | LeaseFinished | None:
        """The next result, or None after the timeout. When no results are left, raises what the threads raised."""
        with self._condition:
            began_s = time.perf_counter()
            self._condition.wait_for(lambda: self._results or self._has_failed, timeout_s)
            self.control.train.add(empty_s=time.perf_counter() - began_s)
            if self._results:
                result = self._results.popleft()
                self._condition.notify_all()
                return result
            if self._error is not None and self._has_failed:
                raise self._error
            return None

    @property
    def _has_failed(self) -> bool:
        """Whether a thread has raised an error, and what was read before it is prepared, if any thread can do so."""
        is_left = bool(self._read_batches) and self._can_prepare
        return self._error is not None and not (is_left or self._preparing)

    @property
    def leases_waiting(self) -> int:
        """Number of leases that the thread has not begun to read."""
        with self._condition:
            return len(self._leases)

    @property
    def is_idle(self) -> bool:
        """Whether no lease is queued, none is being read or prepared, and no result waits."""
        with self._condition:
            return not (self._leases or self._read_batches or self._results or self._working or self._preparing)

    def take_read_s(self) -> float:
        """Seconds spent reading since the last call; the time of `prepare` is not included."""
        return self.control.decode.take_wall_s()

    def take_stages(self) -> tuple[StageSample, ...]:
        """What each stage did since the last call."""
        with self._condition:
            queued = len(self._read_batches)
        return self.control.take_stages(queued)

    def discard(self) -> None:
        """Drops all leases and results (drain). The lease that is being read ends at its next batch."""
        with self._condition:
            self._generation += 1
            self._announced = None
            self._leases.clear()
            self._results.clear()
            self._drop_read()
            if self._orders is not None:
                self._orders.withdraw()
            self._condition.notify_all()
        if self.control.ahead is not None:
            self.control.ahead.forget()

    def close(self, timeout_s: float = 5.0) -> None:
        """Ends the threads, and waits for each for at most `timeout_s`."""
        with self._condition:
            self._closed = True
            self._generation += 1
            self._drop_read()
            self._condition.notify_all()
        self.control.close()
        self._thread.join(timeout_s)
        if self._preparer is not None:
            self._preparer.join(timeout_s)

    def _drop_read(self) -> None:
        for read in self._read_batches:
            self.control.budget.release(read.charged_bytes)
        self._read_batches.clear()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    # --- the thread that reads ------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StoppedError:
            pass  # the worker is stopping and takes no more results
        except BaseException as error:  # noqa: BLE001 - handed to the training loop, which raises it
            with self._condition:
                self._error = error
                if threading.current_thread() is self._preparer:
                    self._preparing = self._can_prepare = False
                    self._drop_read()
                self._condition.notify_all()

    def _run(self) -> None:
        while (task := self._next_lease()) is not None:
            self._read(*task)

    def _next_lease(self) -> tuple[Lease, int | None, int, int] | None:
        with self._condition:
            self._working = False
            self._condition.wait_for(lambda: self._leases or self._closed)
            if self._closed:
                return None
            lease, shuffle_seed, order = self._leases.popleft()
            self._working = True
            return lease, shuffle_seed, order, self._generation

    def _read(self, lease: Lease, shuffle_seed: int | None, order: int, generation: int) -> None:
        unit = self._units[lease.unit]
        self._reading = generation
        if self._orders is not None:
            self._orders.begin(order)
        positions = (lease.start, lease.stop)
        with self.control.decode.span():  # a reader may decode the unit now, or with the first batch
            batches = iter(self._reader.batches(unit, *positions, self._batch_size, shuffle_seed, MIN_SAMPLES))
        while True:
            with self.control.decode.span(items=1):
                samples = next(batches, None)
            if not self._pass_on(samples, lease, generation) or samples is None:
                return

    def _wait(self, seconds: float) -> bool:
        """Waits on behalf of a slowed reader. Returns False at once when the lease that it reads is discarded."""
        with self._condition:
            return not self._condition.wait_for(lambda: self._generation != self._reading, seconds)

    def _pass_on(self, samples: SampleBatch | None, lease: Lease, generation: int) -> bool:
        """Prepares what was read, or queues it for the thread that prepares. False: the lease was discarded."""
        with self._condition:
            is_alone = not (self._read_batches or self._preparing)
            may_queue = self._orders is None and self.control.knobs.prefetch_batches > 0
            if may_queue or not is_alone:
                return self._queue(samples, lease, generation)
        return self._finish(_Read(samples, lease, generation, 0))

    def _queue(self, samples: SampleBatch | None, lease: Lease, generation: int) -> bool:
        size, charged, budget = 0 if samples is None else batch_bytes(samples), 0, self.control.budget

        def has_room() -> bool:
            nonlocal charged
            if self._generation != generation or not self._read_batches:
                return True  # one batch may always wait, whatever its size
            if len(self._read_batches) >= self.control.knobs.prefetch_batches or not budget.take(size):
                return False
            charged = size
            return True

        with self.control.decode.span() as span:
            began_s = time.perf_counter()
            self._condition.wait_for(has_room)
            span.full_s += time.perf_counter() - began_s
        if self._generation != generation:
            return False
        self._read_batches.append(_Read(samples, lease, generation, charged))
        if self._preparer is None:
            self._preparer = threading.Thread(
                target=self._guarded, args=(self._prepare_all,), name="prepare", daemon=True
            )
            self._preparer.start()
        self._condition.notify_all()
        return True

    # --- preparing ------------------------------------------------------------------------------------------

    def _prepare_all(self) -> None:
        while True:
            with self._condition:
                self._preparing = False
                self._condition.notify_all()  # the reading thread may prepare now
                self._condition.wait_for(lambda: self._read_batches or self._closed)
                if self._closed:
                    return
                read = self._read_batches.popleft()
                self.control.budget.release(read.charged_bytes)
                self._preparing = True
                self._condition.notify_all()
            self._finish(read)

    def _finish(self, read: _Read) -> bool:
        """Prepares a batch and queues the result. False: its lease was discarded."""
        result: Prepared | LeaseFinished = LeaseFinished(read.lease)
        if read.samples is not None:
            with self.control.prepare.span(items=1):
                result = self._prepare(read.samples, read.lease)
        return self._put(result, read.generation)

    def _put(self, result: Prepared | LeaseFinished, generation: int) -> bool:
        """Queues a result, waiting for room. False: the lease was discarded meanwhile."""
        with self._condition, self.control.prepare.span() as span:
            began_s = time.perf_counter()
            self._condition.wait_for(lambda: len(self._results) < self._ahead or self._generation != generation)
            span.full_s += time.perf_counter() - began_s
            if self._generation != generation:
                return False
            self._results.append(result)
            self._condition.notify_all()
            return True
