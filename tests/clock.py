"""Time that a test moves by hand."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """A `clock.Clock` that only `advance` moves."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        return self._now_s

    def advance(self, delta_s: float) -> None:
        if delta_s < 0:
            raise ValueError(f"time cannot go back by {-delta_s} s")
        self._now_s += delta_s
