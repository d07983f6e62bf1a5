"""Reports of refused messages: the first 20 of each 10 s in full, of the others only their number.

A peer may send thousands of bad messages a second. The bound keeps logs and journals short and readable.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Refusal", "RefusalLog", "Refusals"]

WINDOW_S = 10.0
MOST_TOLD = 20
MOST_LETTERS = 500


@dataclass(frozen=True, slots=True)
class Refusal:
    """A report. error: why a message is refused. count: how many messages were refused since the last report, including
    this one."""

    error: str
    count: int = 1


class Refusals:
    """Counts refused messages, and decides which of them are reported. Pure."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._in_window = 0

    def note(self, error: str, now_s: float) -> Refusal | None:
        """Counts a refused message. Returns its report, or None if it is not reported."""
        untold = 0
        if now_s - self._began_s >= WINDOW_S:
            untold = max(0, self._in_window - MOST_TOLD)
            self._began_s, self._in_window = now_s, 0
        self._in_window += 1
        if self._in_window > MOST_TOLD:
            return None
        return Refusal(error if len(error) <= MOST_LETTERS else f"{error[:MOST_LETTERS]}...", 1 + untold)


class RefusalLog:
    """Prints reports of refused messages to the standard output, which is the log of the process."""

    def __init__(self) -> None:
        self._refusals = Refusals()

    def __call__(self, error: str) -> None:
        """Counts a refused message, and prints its report if there is one."""
        told = self._refusals.note(error, time.monotonic())
        if told is not None:
            what = "a message" if told.count == 1 else f"{told.count} messages; the last"
            print(f"refused {what}: {told.error}", flush=True)
