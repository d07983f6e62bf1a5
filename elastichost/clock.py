"""Time as an argument: pure cores take `now_s`; only loops own a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "MonotonicClock"]


class Clock(Protocol):
    """A source of seconds that never goes back."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """CLOCK_MONOTONIC of the host: comparable between processes of one host, not between hosts."""

    def now_s(self) -> float:
        return time.monotonic()
