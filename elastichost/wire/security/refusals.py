"""What is said of messages that are refused: the first few of a time in full, of the rest how many they were.

Who may send them may send thousands a second: a log, a journal and whoever reads them have their bounds, too.
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
    """What is to be said: why a message is refused, and how many were refused since the last one that was told of, this
    one included."""

    error: str
    count: int = 1


class Refusals:
    """Pure."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._in_window = 0

    def note(self, error: str, now_s: float) -> Refusal | None:
        """A message is refused. What is to be said of it; None: nothing."""
        untold = 0
        if now_s - self._began_s >= WINDOW_S:
            untold = max(0, self._in_window - MOST_TOLD)
            self._began_s, self._in_window = now_s, 0
        self._in_window += 1
        if self._in_window > MOST_TOLD:
            return None
        return Refusal(error if len(error) <= MOST_LETTERS else f"{error[:MOST_LETTERS]}...", 1 + untold)


class RefusalLog:
    """For a process whose log is its standard output."""

    def __init__(self) -> None:
        self._refusals = Refusals()

    def __call__(self, error: str) -> None:
        """A message is refused."""
        told = self._refusals.note(error, time.monotonic())
        if told is not None:
            what = "a message" if told.count == 1 else f"{told.count} messages; the last"
            print(f"refused {what}: {told.error}", flush=True)
