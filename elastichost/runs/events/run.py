"""Events about a run as a whole: its start, its resume, its end, its disk, its warnings. Pure values."""

from __future__ import annotations

from typing import ClassVar

from elastichost.runs.events.base import Category, Durability, Event
from elastichost.runs.facts import ArenaOrigin, Lineage
from elastichost.runs.result import RollBack

__all__ = [
    "ArenaOpened",
    "ArenaRejected",
    "ArenaReused",
    "CommandRefused",
    "DirectoryLeftBehind",
    "DirectoryNotRemoved",
    "DiskFreed",
    "DiskFull",
    "EarlyStopped",
    "EpochStarted",
    "HistoryUnavailable",
    "MessageRefused",
    "ProcessesKilled",
    "RecordingStopped",
    "RollBackRefused",
    "RolledBack",
    "RunEnded",
    "RunFailed",
    "RunFinishing",
    "RunStarted",
    "StartedFromCheckpoint",
    "SupervisorStalled",
    "Warned",
]


class RunStarted(Event, frozen=True):
    """A supervisor begins to work on the run. Each resume writes one more."""

    run_id: str
    directory: str  # its name

    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True


class RunEnded(Event, frozen=True):
    """The supervisor has ended the run itself and removed its arena. state: as in result.json."""

    state: str

    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True


class RunFailed(Event, frozen=True):
    """The run ends with an error. is_bug: the error is not one of elastichost's typed errors."""

    error_type: str
    message: str
    is_bug: bool = False

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True


class RunFinishing(Event, frozen=True):
    """The supervisor stops all processes because there is nothing left to do, or a person asked for it."""

    reason: str

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class EpochStarted(Event, frozen=True):
    """The ledger begins an epoch (from 0)."""

    epoch: int
    reason: str

    category: ClassVar[Category] = "decision"


class EarlyStopped(Event, frozen=True):
    """Evaluations did not improve: the samples left are not trained."""

    reason: str
    dropped: int  # samples

    category: ClassVar[Category] = "decision"
    is_replayed: ClassVar[bool] = True


class ArenaOpened(Event, frozen=True):
    """The shared memory with all rows is there. origin: filled with initial rows ("new"), by a checkpoint, or reused
    from a supervisor that died ("arena"). lineage: what belongs to the rows."""

    path: str
    directories: tuple[str, ...]  # of all hosts, path first
    touched_bytes: int
    origin: ArenaOrigin = "new"
    lineage: Lineage | None = None

    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True

    @property
    def hosts(self) -> int:
        return len(self.directories)


class ArenaReused(Event, frozen=True):
    """A resume goes on in the arena of the supervisor that died. trained: samples; batches: committed ones."""

    path: str
    trained: int
    batches: int

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class ArenaRejected(Event, frozen=True):
    """A resume does not use the arena of the supervisor that died."""

    reason: str

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class StartedFromCheckpoint(Event, frozen=True):
    """Rows and progress come from a checkpoint. is_foreign: of another run, because `--from` asked for it."""

    checkpoint: str
    is_foreign: bool = False

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class RolledBack(Event, frozen=True):
    """The run goes back to a checkpoint, or to its beginning. number: counts roll backs because of samples, from 1, of
    at most `most`; 0: it went back because a host was lost."""

    entry: RollBack
    number: int = 0
    most: int = 0

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True


class RollBackRefused(Event, frozen=True):
    """The run would go back, but cannot."""

    reason: str

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class SupervisorStalled(Event, frozen=True):
    """The supervisor did not run for a while (stopped, or the machine slept): it extends all deadlines by that."""

    stalled_s: float

    category: ClassVar[Category] = "fault"


class ProcessesKilled(Event, frozen=True):
    """At the end of the run these processes did not end by themselves."""

    processes: tuple[str, ...]

    category: ClassVar[Category] = "fault"


class DirectoryLeftBehind(Event, frozen=True):
    """A directory in shared memory could not be removed at the end."""

    problem: str

    category: ClassVar[Category] = "fault"


class DirectoryNotRemoved(Event, frozen=True):
    """A directory that is not needed any more could not be removed."""

    path: str
    error: str

    category: ClassVar[Category] = "warning"


class DiskFull(Event, frozen=True):
    """Files cannot be written. is_training_held: training waits until they can."""

    files: tuple[str, ...]
    file_system: str  # where, and how much space it has
    error: str
    since_s: float  # seconds for which they could not be written so far
    is_training_held: bool

    category: ClassVar[Category] = "warning"


class DiskFreed(Event, frozen=True):
    """There is space again, and everything that waited for it is written."""

    after_s: float


class RecordingStopped(Event, frozen=True):
    """decisions.jsonl is not written any more; `replay` knows nothing of what follows."""

    problem: str

    category: ClassVar[Category] = "warning"


class HistoryUnavailable(Event, frozen=True):
    """The history of jobs could not be read or written."""

    error: str

    category: ClassVar[Category] = "warning"


class MessageRefused(Event, frozen=True):
    """A message of a process was not accepted. count: such messages since the last event, this one included."""

    error: str
    count: int = 1


class CommandRefused(Event, frozen=True):
    """A command from outside was not accepted. command: "scale", "join", or "" when it was not readable."""

    command: str
    error: str


class Warned(Event, frozen=True):
    """A warning that a part of the configuration wrote for a person: it has no figures of its own."""

    message: str

    category: ClassVar[Category] = "warning"
