"""Events of a dispatcher: its queue, job starts, shares of cores and memory, job ends. Pure values."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from elastichost.runs.events.base import Category, Event, JobEvent

__all__ = [
    "HostPrepared",
    "HostStopping",
    "HostWarned",
    "JobCancelled",
    "JobDone",
    "JobExamined",
    "JobFailed",
    "JobMemoryActed",
    "JobRequeued",
    "JobShared",
    "JobStarted",
    "JobStopped",
    "JobStopping",
    "JobSubmitted",
    "JobTended",
    "JobWarned",
]


class HostPrepared(Event, frozen=True):
    """The libraries are imported, and jobs can start."""

    seconds: float


class HostStopping(Event, frozen=True):
    """The dispatcher received a signal to stop: all jobs save their progress and exit."""

    signal: str

    category: ClassVar[Category] = "decision"


class HostWarned(Event, frozen=True):
    """The dispatcher failed to do something for its jobs; the jobs continue."""

    problem: str

    category: ClassVar[Category] = "warning"


class JobSubmitted(JobEvent, frozen=True):
    """The job is in the queue."""


class JobWarned(JobEvent, frozen=True):
    """The examination of the job before its start gave a warning."""

    message: str

    category: ClassVar[Category] = "warning"


class JobExamined(JobEvent, frozen=True):
    """The job was examined before its start. bound: what limits its speed; breakdown_bytes: parts of its peak memory
    by use."""

    bound: str
    peak_bytes: int
    samples: int
    breakdown_bytes: dict[str, int]


class JobStarted(JobEvent, frozen=True):
    """The job starts. speeds: predicted speed of each job that then runs; 1.0: as fast as alone on the host. demand:
    share of each resource that it is expected to use alone, without those that it does not use. basis: where each of
    these shares comes from, measured or estimated; a share is estimated before its first measurement, and where the
    host cannot measure it."""

    reason: str
    workers: int
    charged_bytes: int
    speeds: dict[str, float]
    demand: dict[str, float] = msgspec.field(default_factory=dict)
    basis: dict[str, str] = msgspec.field(default_factory=dict)

    category: ClassVar[Category] = "decision"


class JobDone(JobEvent, frozen=True):
    """The job completed its training."""

    seconds: float  # since its last start


class JobCancelled(JobEvent, frozen=True):
    """The job was cancelled. run_dir: directory with its progress; "": it had not started."""

    run_dir: str = ""

    category: ClassVar[Category] = "decision"


class JobStopping(JobEvent, frozen=True):
    """The job is asked to save its progress and exit."""

    reason: str

    category: ClassVar[Category] = "decision"


class JobStopped(JobEvent, frozen=True):
    """The job ended because the dispatcher stops. is_saved: it saved its progress first; if not, `reason` is why. A
    resume can continue it in both cases."""

    run_dir: str
    is_saved: bool
    reason: str = ""


class JobRequeued(JobEvent, frozen=True):
    """The job is back in the queue."""

    reason: str

    category: ClassVar[Category] = "decision"


class JobFailed(JobEvent, frozen=True):
    """The job ended with an error and is not tried again."""

    reason: str

    category: ClassVar[Category] = "fault"


class JobMemoryActed(JobEvent, frozen=True):
    """The dispatcher acts on this job because the jobs together use too much memory, or no longer do. limit_bytes: the
    new limit of the actions tighten and loosen."""

    action: str
    reason: str
    limit_bytes: int

    category: ClassVar[Category] = "decision"


class JobTended(JobEvent, frozen=True):
    """The size or the priority of the job changes, because it slows other jobs more than predicted, or no longer
    does."""

    action: str
    reason: str

    category: ClassVar[Category] = "decision"


class JobShared(JobEvent, frozen=True):
    """The job has a new size or new cores. cores: empty: unchanged."""

    size: str
    cores: tuple[int, ...]
    reason: str

    category: ClassVar[Category] = "decision"
