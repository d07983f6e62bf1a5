"""How much of a core the supervisor takes: turns that follow each other too fast are made to wait a little. Pure.

A turn looks at every process, so it costs more the more there are, and each message begins one. With hundreds of
processes turn would follow turn. Waiting lets messages gather: a turn that takes several costs hardly more than one.
"""

from __future__ import annotations

__all__ = ["WorkBudget"]

SHARE = 0.15  # of one core, in the long run
BURST_S = 0.1  # of work that never waits: a hand-over, a death, a few processes
MOST_S = 0.02  # from the beginning of a turn to the next, if that has to wait: a long one has let messages gather


class WorkBudget:
    """A bucket of time to work: it fills by SHARE of what passes, up to BURST_S."""

    def __init__(self) -> None:
        self._left_s = BURST_S

    def rest_s(self, worked_s: float, passed_s: float) -> float:
        """How long to wait before the next turn, after one that worked so long; passed_s: since the last call."""
        self._left_s = min(BURST_S, self._left_s + SHARE * passed_s - worked_s)
        if self._left_s >= 0.0:
            return 0.0
        self._left_s = max(self._left_s, -BURST_S)  # a turn that was very long is not paid for by many
        return min(max(0.0, MOST_S - worked_s), -self._left_s / SHARE)
