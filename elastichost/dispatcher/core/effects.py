"""The effects that the dispatcher's core returns and the loop performs: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.dispatcher.facts import Size
from elastichost.runs.events import AnyEvent

__all__ = [
    "ConfineJob",
    "Effect",
    "ExamineJob",
    "FreezeJob",
    "KillJob",
    "Lent",
    "NoteEvent",
    "ReniceJob",
    "ResizeJob",
    "StartJob",
    "StopJob",
    "ThawJob",
]


@dataclass(frozen=True, slots=True)
class Lent:
    """The part of the host that a job may use. gpu: CUDA index of its GPU; None: no GPU."""

    cores: tuple[int, ...]
    memory_bytes: int
    gpu: int | None = None
    gpu_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ExamineJob:
    """Examines a job before its start: its data, its model, its memory. after_s: seconds to wait before that."""

    job: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StartJob:
    """Starts the job's supervisor. size: None: the supervisor chooses the size itself. resume: the job has a run to
    continue. threads: sum over all workers and PS. nice: 0 to 19."""

    job: str
    incarnation: int
    lent: Lent
    size: Size | None
    resume: bool
    charged_bytes: int
    threads: int
    nice: int = 0


@dataclass(frozen=True, slots=True)
class ResizeJob:
    """Lends the run of a job another size, other cores or another memory limit while it trains. None: unchanged.
    is_proposal: the size is the one that the run's own tuner proposes."""

    job: str
    size: Size | None = None
    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    is_proposal: bool = False


@dataclass(frozen=True, slots=True)
class LimitJob:
    """Gives the job's cgroup the memory limit of this charge, and the CPU weight of this number of computing threads.
    The run receives no message."""

    job: str
    charged_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class ConfineJob:
    """Restricts the job's cgroup to these cores. The run receives no message."""

    job: str
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReniceJob:
    """Gives all processes of the job this nice value, 0 to 19."""

    job: str
    nice: int


@dataclass(frozen=True, slots=True)
class FreezeJob:
    """Stops all processes of the job (SIGSTOP). They keep their memory."""

    job: str


@dataclass(frozen=True, slots=True)
class ThawJob:
    """Continues all processes of the job (SIGCONT)."""

    job: str


@dataclass(frozen=True, slots=True)
class StopJob:
    """Asks the job's supervisor to drain the workers, save a checkpoint and exit (SIGTERM)."""

    job: str


@dataclass(frozen=True, slots=True)
class KillJob:
    """Kills the job's supervisor with its workers and PS, or the process that examines the job (SIGKILL)."""

    job: str


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """Writes an event to the journal."""

    event: AnyEvent


Effect = (
    ExamineJob
    | StartJob
    | ResizeJob
    | LimitJob
    | ConfineJob
    | ReniceJob
    | FreezeJob
    | ThawJob
    | StopJob
    | KillJob
    | NoteEvent
)
