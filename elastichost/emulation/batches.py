"""Cuts leases into the batches that an emulated worker computes. Pure: no data is read."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from elastichost.batches import batch_ranges
from elastichost.wire.facts import Lease, StageSample
from elastichost.worker.pipeline import LeaseFinished

__all__ = ["EmulatedBatch", "LeaseCutter"]


@dataclass(frozen=True, slots=True)
class EmulatedBatch:
    """A batch: positions [start, stop) of a lease."""

    lease: Lease
    start: int
    stop: int

    @property
    def samples(self) -> int:
        return self.stop - self.start


class LeaseCutter:
    """Implements `worker.lease_worker.Batches`: gives the batches of the leases in order. Nothing blocks."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._results: deque[EmulatedBatch | LeaseFinished] = deque()

    def add(self, lease: Lease, shuffle_seed: int | None) -> None:
        for start, stop in batch_ranges(lease.start, lease.stop, self._batch_size):
            self._results.append(EmulatedBatch(lease, start, stop))
        self._results.append(LeaseFinished(lease))

    def get(self, timeout_s: float = 0.0) -> EmulatedBatch | LeaseFinished | None:
        return self._results.popleft() if self._results else None

    @property
    def head(self) -> EmulatedBatch | LeaseFinished | None:
        """The next result of `get`, which stays in the queue."""
        return self._results[0] if self._results else None

    @property
    def next_batch(self) -> EmulatedBatch | None:
        """The next batch that `get` will give; it may come after the end of a lease."""
        return next((one for one in self._results if isinstance(one, EmulatedBatch)), None)

    @property
    def leases_waiting(self) -> int:
        """The number of leases of which no batch was taken yet."""
        ends = sum(isinstance(one, LeaseFinished) for one in self._results)
        first = self._results[0] if self._results else None
        begun = isinstance(first, LeaseFinished) or (first is not None and first.start > first.lease.start)
        return ends - begun

    @property
    def is_idle(self) -> bool:
        return not self._results

    def take_stages(self) -> tuple[StageSample, ...]:
        return ()

    def take_read_s(self) -> float:
        return 0.0

    def discard(self) -> None:
        self._results.clear()

    def close(self) -> None:
        self.discard()
