"""Measures one stage of a worker's input: CPU and waiting, strictly apart."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass

from elastichost.wire.facts import Stage, StageSample

__all__ = ["StageMeter", "StageSpan", "Waits", "quantile_of"]

TIMES_KEPT = 256  # of the newest items, for the quantiles


@dataclass(slots=True)
class Waits:
    """Seconds that a thread waited: for the source, for room, for something in an empty queue."""

    source_s: float = 0.0
    full_s: float = 0.0
    empty_s: float = 0.0

    @property
    def all_s(self) -> float:
        return self.source_s + self.full_s + self.empty_s


class StageSpan(Waits):
    """What one thread does from the begin of a `with` to its end, and the waits that it notes meanwhile. Its wall time
    without CPU time and waits is `other_s`. It is a class, and no generator, because there are several for a batch."""

    __slots__ = ("_began_cpu_s", "_began_s", "_items", "_meter", "_outer")

    def __init__(self, meter: StageMeter, items: int) -> None:
        super().__init__()
        self._meter, self._items = meter, items
        self._outer: StageSpan | None = None
        self._began_s = self._began_cpu_s = 0.0

    def __enter__(self) -> StageSpan:
        self._outer = self._meter.opened(self)
        self._began_s, self._began_cpu_s = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall_s, cpu_s = time.perf_counter() - self._began_s, time.thread_time() - self._began_cpu_s
        self._meter.opened(self._outer)
        self._meter.ended(self, wall_s, max(0.0, cpu_s), self._items)


class StageMeter:
    """Sums of one stage since the last `take`; used by several threads."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._lock = threading.Lock()
        self._open = threading.local()
        self._times_s: deque[float] = deque(maxlen=TIMES_KEPT)
        self._clear()
        self._read_s = 0.0

    def _clear(self) -> None:
        self._cpu_s = self._other_s = self._first_byte_s = 0.0
        self._waits, self._bytes, self._items = Waits(), 0, 0

    def span(self, items: int = 0) -> StageSpan:
        """Measures what this thread does in a `with`. items: the number of items that it works on."""
        return StageSpan(self, items)

    def opened(self, span: StageSpan | None) -> StageSpan | None:
        """Makes this the open span of the present thread. Returns the one before."""
        before: StageSpan | None = getattr(self._open, "span", None)
        self._open.span = span
        return before

    def wait_here(self, source_s: float = 0.0, empty_s: float = 0.0) -> None:
        """Notes that this thread waited, in the span that it has open; without one it has no effect."""
        span = getattr(self._open, "span", None)
        if span is not None:
            span.source_s += source_s
            span.empty_s += empty_s

    def ended(self, span: Waits, wall_s: float, cpu_s: float, items: int) -> None:
        """Adds a span that has ended."""
        with self._lock:
            self._cpu_s += cpu_s
            self._other_s += max(0.0, wall_s - cpu_s - span.all_s)
            self._waits.source_s += span.source_s
            self._waits.full_s += span.full_s
            self._waits.empty_s += span.empty_s
            self._items += items
            if items:
                self._times_s.append(wall_s)
            self._read_s += wall_s - span.full_s

    def add(
        self,
        *,
        cpu_s: float = 0.0,
        source_s: float = 0.0,
        empty_s: float = 0.0,
        first_byte_s: float = 0.0,
        size_bytes: int = 0,
        items: int = 0,
        time_s: float | None = None,
    ) -> None:
        """Adds what was measured elsewhere. time_s: the time of one item, for the quantiles."""
        with self._lock:
            self._cpu_s += cpu_s
            self._waits.source_s += source_s
            self._waits.empty_s += empty_s
            self._first_byte_s += first_byte_s
            self._bytes += size_bytes
            self._items += items
            if time_s is not None:
                self._times_s.append(time_s)

    def merge(self, sample: StageSample) -> None:
        """Adds what another process did in this stage."""
        with self._lock:
            self._cpu_s += sample.cpu_s
            self._other_s += sample.other_s
            self._waits.source_s += sample.source_s
            self._waits.full_s += sample.full_s
            self._waits.empty_s += sample.empty_s
            self._first_byte_s += sample.first_byte_s
            self._bytes += sample.bytes
            self._items += sample.items
            if sample.items:
                self._times_s += (sample.p50_s, sample.p90_s, sample.p99_s)

    def forget_times(self) -> None:
        """Items take another time from now on: quantiles are of those that are added after this."""
        with self._lock:
            self._times_s.clear()

    def take_wall_s(self) -> float:
        """Seconds of all spans since the last call, without the waits for room."""
        with self._lock:
            taken_s, self._read_s = self._read_s, 0.0
            return taken_s

    def take(self, occupancy: float = 0.0) -> StageSample:
        """The sums since the last call."""
        with self._lock:
            times = sorted(self._times_s)
            sample = StageSample(
                self._stage,
                cpu_s=self._cpu_s,
                source_s=self._waits.source_s,
                full_s=self._waits.full_s,
                empty_s=self._waits.empty_s,
                other_s=self._other_s,
                first_byte_s=self._first_byte_s,
                bytes=self._bytes,
                items=self._items,
                p50_s=quantile_of(times, 0.5),
                p90_s=quantile_of(times, 0.9),
                p99_s=quantile_of(times, 0.99),
                occupancy=min(1.0, max(0.0, occupancy)),
            )
            self._clear()
            return sample


def quantile_of(ordered: list[float], share: float) -> float:
    """The quantile `share` of sorted values by nearest rank; 0.0 for none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
