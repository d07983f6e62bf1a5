"""The prefetch thread: turns leases into prepared batches, a bounded number ahead of the training loop."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from elastichost.batches import MIN_SAMPLES
from elastichost.datasets.api import Reader, SampleBatch, Unit
from elastichost.datasets.remote import RemoteRate, RemoteReader
from elastichost.wire.facts import Lease
from elastichost.worker.channels.channel import StoppedError

__all__ = ["PREFETCH_BATCHES", "PREFETCH_PULLED", "LeaseFinished", "Pipeline"]

PREFETCH_BATCHES = 3
# Pulled rows become stale while they wait: with served access one batch waits while the next is being pulled.
PREFETCH_PULLED = 1

Prepared = TypeVar("Prepared")  # what `prepare` makes of a batch of samples


@dataclass(frozen=True, slots=True)
class LeaseFinished:
    """The result after the last batch of a lease. Skipped rows behind its last batch are accounted for with it."""

    lease: Lease


class Pipeline(Generic[Prepared]):
    """Reads and prepares leases in the order of `add`; holds at most `ahead` results.

    `close` wakes the thread wherever it waits in this class: for a lease, for room in the queue, in a slowed reader. (A
    thread that waits for a pull is woken by `DirectoryHolder.stop`.) With `remote` the reader is slowed to that rate;
    the added waiting counts as reading time.
    """

    def __init__(
        self,
        reader: Reader,
        units: tuple[Unit, ...],
        batch_size: int,
        prepare: Callable[[SampleBatch, Lease], Prepared],
        ahead: int = PREFETCH_BATCHES,
        remote: RemoteRate | None = None,
    ) -> None:
        self._ahead = ahead
        self._reader = reader if remote is None else RemoteReader(reader, remote, self._wait, time.monotonic)
        self._units, self._batch_size, self._prepare = units, batch_size, prepare
        self._condition = threading.Condition()
        self._leases: deque[tuple[Lease, int | None]] = deque()
        self._results: deque[Prepared | LeaseFinished] = deque()
        self._generation = 0
        self._reading = 0  # generation of the lease that is being read
        self._working = False
        self._closed = False
        self._error: BaseException | None = None
        self._read_s = self._taken_s = 0.0
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def add(self, lease: Lease, shuffle_seed: int | None) -> None:
        """Queues a lease. shuffle_seed: None reads its unit in order."""
        with self._condition:
            self._leases.append((lease, shuffle_seed))
            self._condition.notify_all()

    def get(self, timeout_s: float) -> Prepared | LeaseFinished | None:
        """The next result, or None after the timeout. When no results are left, raises what the thread raised."""
        with self._condition:
            self._condition.wait_for(lambda: self._results or self._error is not None, timeout_s)
            if self._results:
                result = self._results.popleft()
                self._condition.notify_all()
                return result
            if self._error is not None:
                raise self._error
            return None

    @property
    def leases_waiting(self) -> int:
        """Number of leases that the thread has not begun to read."""
        with self._condition:
            return len(self._leases)

    @property
    def is_idle(self) -> bool:
        """Whether no lease is queued, none is being read and no result waits."""
        with self._condition:
            return not (self._leases or self._results or self._working)

    def take_read_s(self) -> float:
        """Seconds spent reading since the last call; the time of `prepare` is not included."""
        taken_s, self._taken_s = self._taken_s, self._read_s
        return self._taken_s - taken_s

    def discard(self) -> None:
        """Drops all leases and results (drain). The lease that is being read ends at its next result."""
        with self._condition:
            self._generation += 1
            self._leases.clear()
            self._results.clear()
            self._condition.notify_all()

    def close(self, timeout_s: float = 5.0) -> None:
        """Ends the thread, and waits for it for at most `timeout_s`."""
        with self._condition:
            self._closed = True
            self._generation += 1
            self._condition.notify_all()
        self._thread.join(timeout_s)

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (task := self._next_lease()) is not None:
                lease, shuffle_seed, generation = task
                self._read(lease, shuffle_seed, generation)
        except StoppedError:
            pass  # the worker is stopping and takes no more results
        except BaseException as error:  # noqa: BLE001 - handed to the training loop, which raises it
            with self._condition:
                self._error = error
                self._condition.notify_all()

    def _next_lease(self) -> tuple[Lease, int | None, int] | None:
        with self._condition:
            self._working = False
            self._condition.wait_for(lambda: self._leases or self._closed)
            if self._closed:
                return None
            lease, shuffle_seed = self._leases.popleft()
            self._working = True
            return lease, shuffle_seed, self._generation

    def _read(self, lease: Lease, shuffle_seed: int | None, generation: int) -> None:
        unit = self._units[lease.unit]
        self._reading = generation
        began_s = time.perf_counter()
        positions = (lease.start, lease.stop)
        for samples in self._reader.batches(unit, *positions, self._batch_size, shuffle_seed, MIN_SAMPLES):
            self._read_s += time.perf_counter() - began_s
            if not self._put(self._prepare(samples, lease), generation):
                return
            began_s = time.perf_counter()
        self._put(LeaseFinished(lease), generation)

    def _wait(self, seconds: float) -> bool:
        """Waits on behalf of a slowed reader. Returns False at once when the lease that it reads is discarded."""
        with self._condition:
            return not self._condition.wait_for(lambda: self._generation != self._reading, seconds)

    def _put(self, result: Prepared | LeaseFinished, generation: int) -> bool:
        """Queues a result, waiting for room. False: the lease was discarded meanwhile."""
        with self._condition:
            self._condition.wait_for(lambda: len(self._results) < self._ahead or self._generation != generation)
            if self._generation != generation:
                return False
            self._results.append(result)
            self._condition.notify_all()
            return True
