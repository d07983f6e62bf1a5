"""Counts the ids of training batches that were looked up, and those of them that had no row because memory was full.

Workers count in the arena of their host (`arena.watermarks`), so no count is lost when a process is killed. The counts
from before the arena was made are in the checkpoint that it was filled from.
"""

from __future__ import annotations

from elastichost.runs.result import Lookups
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.leases import HostWatermarks

__all__ = ["LookupCount", "why_incomplete"]


def why_incomplete(lookups: Lookups, most: float) -> str:
    """Why the run is incomplete although all samples were trained, in words; "": it is complete. most: the share of
    lookups that may find no row."""
    if lookups.share_without_row <= most:
        return ""
    return (
        f"{lookups.share_without_row:.1%} of the ids looked up in training had no row because memory was full; "
        f"resources.most_without_row allows {most:.1%}. Raise resources.memory, or set evict_after_samples or "
        "admit_after"
    )


class LookupCount:
    """The lookups of a run. before: the counts at the time when the arena was made."""

    def __init__(self, run: RunContext, before: Lookups) -> None:
        self._before, self._watermarks = before, HostWatermarks(run)  # lost hosts stay in it: their lookups count

    def total(self) -> Lookups:
        """All lookups up to now."""
        counted = [marks.lookups() for marks in self._watermarks.all()]
        return Lookups(
            self._before.total + sum(total for total, _ in counted),
            self._before.without_row + sum(without_row for _, without_row in counted),
        )
