"""What the dispatcher's core wants done: values that its loop performs."""

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
    """A part of the host. gpu: its number as CUDA has it, None: none."""

    cores: tuple[int, ...]
    memory_bytes: int
    gpu: int | None = None
    gpu_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ExamineJob:
    """Look at the job before it may start: its data, its model, its memory. after_s: not sooner."""

    job: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start its supervisor. size: None: as it would choose alone; resume: it has a run to go on with; threads: of all
    its workers and PS."""

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
    """While it trains: another size, other cores, another limit of memory; None: as it is."""

    job: str
    size: Size | None = None
    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ConfineJob:
    """What keeps it apart from others lets it have these cores; the run itself is told nothing."""

    job: str
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReniceJob:
    job: str
    nice: int


@dataclass(frozen=True, slots=True)
class FreezeJob:
    """Its processes stand still and keep their memory."""

    job: str


@dataclass(frozen=True, slots=True)
class ThawJob:
    job: str


@dataclass(frozen=True, slots=True)
class StopJob:
    """Drain, save, end."""

    job: str


@dataclass(frozen=True, slots=True)
class KillJob:
    """At once."""

    job: str


@dataclass(frozen=True, slots=True)
class NoteEvent:
    """A line of the journal."""

    event: AnyEvent


Effect = (
    ExamineJob | StartJob | ResizeJob | ConfineJob | ReniceJob | FreezeJob | ThawJob | StopJob | KillJob | NoteEvent
)
