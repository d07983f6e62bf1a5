"""The source of time. A core that decides takes `now_s` as an argument; only loops have a `Clock`.

Modules:
    backoff   the wait before something that failed is tried again
"""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "MonotonicClock"]


class Clock(Protocol):
    """A source of time in seconds that never goes back."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """CLOCK_MONOTONIC of the host. Its times can be compared between processes of one host, but not between hosts."""

    def now_s(self) -> float:
        return time.monotonic()
