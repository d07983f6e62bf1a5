"""Decides which jobs are examined now, before their start: a limited number at a time, one of each shape. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Examinations"]


@dataclass(slots=True)
class Examinations:
    """The jobs that wait for an examination, and the examinations that run.

    Jobs of one shape differ only in name and seed, so the result of one examination holds for all of them. If it fails,
    the next job of the shape is examined itself, and gets an error of its own."""

    _waiting: dict[str, str] = field(default_factory=dict)  # job -> shape, in the order of submission
    _running: dict[str, str] = field(default_factory=dict)  # job -> shape

    def submit(self, job: str, shape: str) -> None:
        """Adds a job. shape: "": no other job is like it."""
        self._waiting[job] = shape

    def next(self, most: int) -> tuple[str, ...]:
        """Returns the jobs whose examinations start now. most: limit of examinations that run at the same time."""
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
        """Records that the examination of a job succeeded. Returns the jobs for which its result holds: this job first,
        then the waiting jobs of its shape."""
        shape = self._running.pop(job, "")
        alike = [other for other, its in self._waiting.items() if shape and its == shape]
        for other in alike:
            del self._waiting[other]
        return (job, *alike)

    def forget(self, job: str) -> None:
        """Removes a job whose examination failed, or that no longer needs one."""
        self._waiting.pop(job, None)
        self._running.pop(job, None)
