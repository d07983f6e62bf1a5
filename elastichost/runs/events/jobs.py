"""Events of a host that runs many jobs: the queue, starts, shares of cores and memory, ends. Pure values."""

from __future__ import annotations

from typing import ClassVar

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
    """Libraries are imported: jobs can start."""

    seconds: float


class HostStopping(Event, frozen=True):
    """A signal asks the host to stop: jobs save what they have trained, and end."""

    signal: str

    category: ClassVar[Category] = "decision"


class HostWarned(Event, frozen=True):
    """Something that the host does for its jobs failed; the jobs go on."""

    problem: str

    category: ClassVar[Category] = "warning"


class JobSubmitted(JobEvent, frozen=True):
    """The job is in the queue."""


class JobWarned(JobEvent, frozen=True):
    """A warning about the job, found before its start."""

    message: str

    category: ClassVar[Category] = "warning"


class JobExamined(JobEvent, frozen=True):
    """What was found out about the job before its start. bound: what its speed is bound by; breakdown_bytes: of its
    peak memory, by what needs it."""

    bound: str
    peak_bytes: int
    samples: int
    breakdown_bytes: dict[str, int]


class JobStarted(JobEvent, frozen=True):
    """The job starts. speeds: predicted for each job that runs then, 1.0: as fast as alone."""

    reason: str
    workers: int
    charged_bytes: int
    speeds: dict[str, float]

    category: ClassVar[Category] = "decision"


class JobDone(JobEvent, frozen=True):
    """The job is done."""

    seconds: float  # since its last start


class JobCancelled(JobEvent, frozen=True):
    """The job was cancelled. run_dir: where what it has trained is kept; "": it was not started."""

    run_dir: str = ""

    category: ClassVar[Category] = "decision"


class JobStopping(JobEvent, frozen=True):
    """The job is told to save what it has trained, and to end."""

    reason: str

    category: ClassVar[Category] = "decision"


class JobStopped(JobEvent, frozen=True):
    """The job ended because the host stops. is_saved: a resume goes on with it; else reason says what came between."""

    run_dir: str
    is_saved: bool
    reason: str = ""


class JobRequeued(JobEvent, frozen=True):
    """The job waits again."""

    reason: str

    category: ClassVar[Category] = "decision"


class JobFailed(JobEvent, frozen=True):
    """The job ended with an error, and is not tried again."""

    reason: str

    category: ClassVar[Category] = "fault"


class JobMemoryActed(JobEvent, frozen=True):
    """Jobs together use more memory than there is, or no more: what this one is told. limit_bytes: of tighten and
    loosen."""

    action: str
    reason: str
    limit_bytes: int

    category: ClassVar[Category] = "decision"


class JobTended(JobEvent, frozen=True):
    """The job slows others more than was predicted, or no more: its size or its priority changes."""

    action: str
    reason: str

    category: ClassVar[Category] = "decision"


class JobShared(JobEvent, frozen=True):
    """The job has another size or other cores. cores: (): as before."""

    size: str
    cores: tuple[int, ...]
    reason: str

    category: ClassVar[Category] = "decision"
