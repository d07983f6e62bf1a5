"""Which jobs are looked at before they start: a few at a time, and of jobs of one shape only the first. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Examinations"]


@dataclass(slots=True)
class Examinations:
    """Jobs of one shape differ in name and seed only: what is found out about one holds for all of them. If the first
    fails the next is looked at: it is told its own error."""

    _waiting: dict[str, str] = field(default_factory=dict)  # job -> shape, in the order of submission
    _running: dict[str, str] = field(default_factory=dict)

    def submit(self, job: str, shape: str) -> None:
        """shape: "": like no other."""
        self._waiting[job] = shape

    def next(self, most: int) -> tuple[str, ...]:
        """Jobs that are to be looked at from now on; with those under way no more than `most`."""
        found = []
        for job, shape in list(self._waiting.items()):
            if len(self._running) >= most:
                break
            if not shape or shape not in self._running.values():
                del self._waiting[job]
                self._running[job] = shape
                found.append(job)
        return tuple(found)

    def found(self, job: str) -> tuple[str, ...]:
        """It was looked at: for which jobs that holds, itself first."""
        shape = self._running.pop(job, "")
        alike = [other for other, its in self._waiting.items() if shape and its == shape]
        for other in alike:
            del self._waiting[other]
        return (job, *alike)

    def forget(self, job: str) -> None:
        """It was looked at in vain, or is not wanted any more."""
        self._waiting.pop(job, None)
        self._running.pop(job, None)
