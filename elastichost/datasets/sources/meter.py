"""Measures one stage of a worker's input: CPU and waiting, strictly apart."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from elastichost.wire.facts import Stage, StageSample

__all__ = ["StageMeter", "StageSpan", "quantile_of"]

TIMES_KEPT = 256  # of the newest items, for the quantiles


@dataclass(slots=True)
class StageSpan:
    """What a thread waits for while it works on an item. The rest of the item's wall time is CPU time or `other_s`."""

    source_s: float = 0.0
    full_s: float = 0.0
    empty_s: float = 0.0

    @property
    def waited_s(self) -> float:
        return self.source_s + self.full_s + self.empty_s


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
        self._waits, self._bytes, self._items = StageSpan(), 0, 0

    @contextmanager
    def span(self, items: int = 0) -> Iterator[StageSpan]:
        """Measures what this thread does within the context. Its wall time without CPU time and without the waits that
        are noted in the span is `other_s`."""
        span, outer = StageSpan(), getattr(self._open, "span", None)
        self._open.span = span
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        try:
            yield span
        finally:
            wall_s, cpu_s = time.perf_counter() - began_s, time.thread_time() - began_cpu_s
            self._open.span = outer
            self._add_span(span, wall_s, max(0.0, cpu_s), items)

    def wait_here(self, source_s: float = 0.0, empty_s: float = 0.0) -> None:
        """Notes that this thread waited, in the span that it has open; without one it has no effect."""
        span = getattr(self._open, "span", None)
        if span is not None:
            span.source_s += source_s
            span.empty_s += empty_s

    def _add_span(self, span: StageSpan, wall_s: float, cpu_s: float, items: int) -> None:
        with self._lock:
            self._cpu_s += cpu_s
            self._other_s += max(0.0, wall_s - cpu_s - span.waited_s)
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
                p99_s=quantile_of(times, 0.99),
                occupancy=min(1.0, max(0.0, occupancy)),
            )
            self._clear()
            return sample


def quantile_of(ordered: list[float], share: float) -> float:
    """The quantile `share` of sorted values by nearest rank; 0.0 for none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
