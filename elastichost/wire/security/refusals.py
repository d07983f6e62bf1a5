"""What is said of messages that are refused: the first few of a time in full, of the rest how many they were.

Who may send them may send thousands a second: a log, a journal and whoever reads them have their bounds, too.
"""

from __future__ import annotations

import time

__all__ = ["RefusalLog", "Refusals"]

WINDOW_S = 10.0
MOST_TOLD = 20
MOST_LETTERS = 500


class Refusals:
    """Pure. `total`: messages refused so far."""

    def __init__(self) -> None:
        self.total = 0
        self._began_s = 0.0
        self._in_window = 0

    def note(self, text: str, now_s: float) -> str:
        """A message is refused, because of `text`. What is to be said of it; "": nothing."""
        untold = 0
        if now_s - self._began_s >= WINDOW_S:
            untold = max(0, self._in_window - MOST_TOLD)
            self._began_s, self._in_window = now_s, 0
        self.total += 1
        self._in_window += 1
        if self._in_window > MOST_TOLD:
            return ""
        shown = text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."
        return f"{shown} (and {untold} others before it, not told one by one)" if untold else shown


class RefusalLog:
    """For a process whose log is its standard output."""

    def __init__(self) -> None:
        self._refusals = Refusals()

    def __call__(self, text: str) -> None:
        """A message is refused."""
        if told := self._refusals.note(text, time.monotonic()):
            print(f"refused a message: {told}", flush=True)
