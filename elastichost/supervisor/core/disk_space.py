"""Which files of a run can not be written for want of space, since when, and whether the run has to wait. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.runs.events import DiskFreed, DiskFull

__all__ = ["DiskSpace"]

AGAIN_S = 60.0  # as long as it lasts it is told again


@dataclass(slots=True)
class _Full:
    since_s: float
    reason: str
    must_wait: bool


class DiskSpace:
    """Told every turn of every file. `holds_training`: a file is among them without which nothing can be committed, or
    without which the run could not be resumed."""

    def __init__(self) -> None:
        self._full: dict[str, _Full] = {}
        self._told: frozenset[str] = frozenset()
        self._told_s = 0.0
        self._began_s = 0.0

    def look(self, file: str, problem: str, now_s: float, *, must_wait: bool = False) -> None:
        """problem: why this file can not be written, "" when it can."""
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
        """None: nothing has to wait."""
        return min((one.since_s for one in self._full.values() if one.must_wait), default=None)

    @property
    def files(self) -> tuple[str, ...]:
        """That can not be written."""
        return tuple(sorted(self._full))

    def note(self, where: str, now_s: float) -> DiskFull | DiskFreed | None:
        """What is to be told now, if anything. where: the file system, and how much space it has."""
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
