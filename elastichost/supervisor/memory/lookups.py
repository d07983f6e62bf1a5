"""How many ids of training batches were looked up, and how many of these had no row for want of memory.

Workers count in words of the arena of their host (`arena.watermarks`), so a killed process loses nothing. What was
counted before the arena was made is in the checkpoint that it was filled from.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from elastichost.arena.watermarks import Watermarks
from elastichost.errors import ArenaError
from elastichost.runs.result import Lookups
from elastichost.supervisor.context import Run

__all__ = ["LookupCount", "why_incomplete"]


def why_incomplete(lookups: Lookups, most: float) -> str:
    """Why the model is not what it should be, although all samples were trained; "" when it is. most: share of lookups
    that may have no row for want of memory."""
    if lookups.share_without_row <= most:
        return ""
    return (
        f"{lookups.share_without_row:.1%} of the ids looked up while training had no row for want of memory; "
        f"resources.most_without_row allows {most:.1%}"
    )


class LookupCount:
    """before: of the samples that the arena's rows had been trained with when it was made."""

    def __init__(self, run: Run, before: Lookups) -> None:
        self._run, self._before = run, before
        self._marks: dict[Path, Watermarks] = {}  # also of a host that was lost: what was trained there counts
        self._find()

    def total(self) -> Lookups:
        """Up to now."""
        self._find()
        counted = [marks.lookups() for marks in self._marks.values()]
        return Lookups(
            self._before.total + sum(total for total, _ in counted),
            self._before.without_row + sum(without_row for _, without_row in counted),
        )

    def _find(self) -> None:
        """Arenas of machines that have joined, too. What is mapped counts, even if its name is gone by now."""
        run = self._run
        for directory in (run.arena, *(path for host, path in run.other_arenas.items() if run.uses(host))):
            if directory not in self._marks:
                with contextlib.suppress(ArenaError):
                    self._marks[directory] = Watermarks(directory)
