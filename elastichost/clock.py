"""Time as an argument: pure cores take `now_s`; only loops own a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "MonotonicClock"]


class Clock(Protocol):
    """A source of seconds that never goes back."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """CLOCK_MONOTONIC of the host: comparable between processes of one host, not between hosts."""

    def now_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that tests and simulations move by hand."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        return self._now_s

    def advance(self, delta_s: float) -> None:
        if delta_s < 0:
            raise ValueError(f"time cannot go back by {-delta_s} s")
        self._now_s += delta_s
