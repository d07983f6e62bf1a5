"""Which files of a run cannot be written because a disk is full, since when, and whether training must wait. Pure.

The supervisor reports the state of every file each turn (`look`). `note` returns the event to journal: DiskFull when a
file is added and again every AGAIN_S, DiskFreed when all files can be written again.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.runs.events import DiskFreed, DiskFull

__all__ = ["DiskSpace"]

AGAIN_S = 60.0  # a disk that stays full is reported again after this time


@dataclass(slots=True)
class _Full:
    since_s: float
    reason: str
    must_wait: bool


class DiskSpace:
    """The files that cannot be written now. holds_training: one of them is needed to commit batches or to resume the
    run, so training waits."""

    def __init__(self) -> None:
        self._full: dict[str, _Full] = {}
        self._told: frozenset[str] = frozenset()
        self._told_s = 0.0
        self._began_s = 0.0

    def look(self, file: str, problem: str, now_s: float, *, must_wait: bool = False) -> None:
        """Reports a file. problem: why it cannot be written, "" when it can. must_wait: training must wait for it."""
        if not problem:
            self._full.pop(file, None)
        elif file not in self._full:
            self._began_s = self._began_s if self._full else now_s
            self._full[file] = _Full(now_s, problem, must_wait)

    @property
    def holds_training(self) -> bool:
        return any(one.must_wait for one in self._full.values())

    @property
    def held_since_s(self) -> float | None:
        """Since when training waits; None: it does not wait."""
        return min((one.since_s for one in self._full.values() if one.must_wait), default=None)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files that cannot be written, sorted."""
        return tuple(sorted(self._full))

    def note(self, where: str, now_s: float) -> DiskFull | DiskFreed | None:
        """The event to journal now; None: there is nothing new. where: the file system and its free space."""
        files = frozenset(self._full)
        if not files:
            if not self._told:
                return None
            passed_s, self._told = now_s - self._began_s, frozenset()
            return DiskFreed(passed_s)
        if files <= self._told and now_s < self._told_s + AGAIN_S:
            return None
        self._told, self._told_s = self._told | files, now_s
        error = next(iter(self._full.values())).reason
        return DiskFull(self.files, where, error, now_s - self._began_s, self.holds_training)
