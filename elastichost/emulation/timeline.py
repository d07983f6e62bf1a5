"""When an emulated worker does what: moments of the monotonic clock, each following from those before. Pure.

A process wakes late, by a millisecond or by many where the host is busy. So nothing is counted from the moment at which
it woke, but from the one at which it should have: lateness is made up for, up to MAX_LAG_S, and does not add up.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_LAG_S", "WorkerTimeline"]

MAX_LAG_S = 0.25


@dataclass(slots=True)
class WorkerTimeline:
    """Of one worker. `late_s`: what could not be made up for: the host is too slow for what it emulates."""

    floor_s: float  # nothing begins before: what was waited for until then was real
    pull_free_s: float = 0.0  # when the next pull may leave, as far as batches before are concerned
    computed_s: float = 0.0  # end of the last batch
    read_s: float = 0.0  # end of the last reading
    late_s: float = 0.0
    _left_s: tuple[float, float] = (0.0, 0.0)  # the last two pulls

    def hold(self, now_s: float) -> None:
        """The worker had nothing to do, or had to stand still, until now."""
        self.floor_s = now_s

    def _at(self, moment_s: float, now_s: float) -> float:
        moment_s = max(moment_s, self.floor_s)
        if now_s - moment_s > MAX_LAG_S:
            self.late_s += now_s - moment_s
            self.floor_s = moment_s = now_s
        return moment_s

    def pull_leaves(self, reading_s: float, now_s: float) -> float:
        """The next batch is read ahead, at most two wait to be pulled for; its pull leaves now."""
        if reading_s > 0.0:
            self.read_s = max(self.read_s, self._left_s[0], self.floor_s) + reading_s
        leaves_s = self._at(max(self.pull_free_s, self.read_s), now_s)
        self._left_s = self._left_s[1], leaves_s
        return leaves_s

    def computes(self, pulled_s: float, now_s: float) -> float:
        """The batch is pulled, and the one before is computed: from now on it is this one's turn."""
        return self._at(max(pulled_s, self.computed_s), now_s)
