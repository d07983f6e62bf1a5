"""Limits the share of a core that the supervisor uses: a turn waits a little when turns follow too fast. Pure.

A turn looks at every process, so its cost grows with their number, and each message begins a turn. With hundreds of
processes the supervisor would never be idle. A wait lets messages accumulate, and a turn that handles several messages
costs little more than a turn that handles one.
"""

from __future__ import annotations

__all__ = ["WorkBudget"]

SHARE = 0.15  # of one core, in the long run
BURST_S = 0.1  # work that never has to wait: a hand-over, a death, a few processes
MOST_S = 0.02  # a wait ends at the latest this long after the beginning of the last turn


class WorkBudget:
    """A token bucket of work time: it fills by SHARE of the time that passes, up to BURST_S."""

    def __init__(self) -> None:
        self._left_s = BURST_S

    def rest_s(self, worked_s: float, passed_s: float) -> float:
        """How long to wait before the next turn. worked_s: duration of the last turn. passed_s: time since the last
        call."""
        self._left_s = min(BURST_S, self._left_s + SHARE * passed_s - worked_s)
        if self._left_s >= 0.0:
            return 0.0
        self._left_s = max(self._left_s, -BURST_S)  # one very long turn must not delay many later ones
        return min(max(0.0, MOST_S - worked_s), -self._left_s / SHARE)
