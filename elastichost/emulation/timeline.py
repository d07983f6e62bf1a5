"""The moments (of the monotonic clock) at which an emulated worker acts, each computed from earlier ones. Pure.

A process wakes late: by a millisecond, or by more on a busy host. So a time is not counted from the moment at which the
process woke, but from the planned moment. The worker makes up for lateness up to MAX_LAG_S, so that it does not add up.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_LAG_S", "WorkerTimeline"]

MAX_LAG_S = 0.25


@dataclass(slots=True)
class WorkerTimeline:
    """The timeline of one worker. late_s: lateness in seconds that could not be made up, because the real host is too
    slow."""

    floor_s: float  # nothing begins before this moment: until then the worker really waited
    pull_free_s: float = 0.0  # when earlier batches allow the next pull to leave
    computed_s: float = 0.0  # when the computing of the last batch ends
    read_s: float = 0.0  # when the reading of the last batch ends
    late_s: float = 0.0
    _left_s: tuple[float, float] = (0.0, 0.0)  # when the last two pulls left

    def hold(self, now_s: float) -> None:
        """The worker had no work, or stood still, until `now_s`."""
        self.floor_s = now_s

    def _at(self, moment_s: float, now_s: float) -> float:
        """The planned moment; `now_s` when the process is later than MAX_LAG_S."""
        moment_s = max(moment_s, self.floor_s)
        if now_s - moment_s > MAX_LAG_S:
            self.late_s += now_s - moment_s
            self.floor_s = moment_s = now_s
        return moment_s

    def pull_leaves(self, reading_s: float, now_s: float) -> float:
        """When the pull of the next batch leaves. reading_s: time to read the batch. Batches are read ahead: at most
        two that were read wait for their pulls."""
        if reading_s > 0.0:
            self.read_s = max(self.read_s, self._left_s[0], self.floor_s) + reading_s
        leaves_s = self._at(max(self.pull_free_s, self.read_s), now_s)
        self._left_s = self._left_s[1], leaves_s
        return leaves_s

    def computes(self, pulled_s: float, now_s: float) -> float:
        """When the computing of a batch begins: its rows are pulled, and the batch before is computed."""
        return self._at(max(pulled_s, self.computed_s), now_s)
