"""Events about a run as a whole: start, resume, end, disk, warnings. Pure values."""

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
    "LoggerFailed",
    "MeasurementsSetAside",
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
    """A supervisor starts to work on the run. Each resume writes one more of these events."""

    run_id: str
    directory: str  # name of the run directory

    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True


class RunEnded(Event, frozen=True):
    """The supervisor ended the run in order and removed its arena. state: the status in result.json."""

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
    """The supervisor stops all processes, because the run is complete or a person requested the stop."""

    reason: str

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class EpochStarted(Event, frozen=True):
    """The ledger starts an epoch (counted from 0)."""

    epoch: int
    reason: str

    category: ClassVar[Category] = "decision"


class EarlyStopped(Event, frozen=True):
    """Evaluations did not improve: the remaining samples are not trained. dropped: their number."""

    reason: str
    dropped: int  # samples

    category: ClassVar[Category] = "decision"
    is_replayed: ClassVar[bool] = True


class ArenaOpened(Event, frozen=True):
    """The shared memory for all rows is open. origin: "new": filled with initial rows; "checkpoint": filled from a
    checkpoint; "arena": taken over from a supervisor that died. lineage: the progress that belongs to the rows."""

    path: str
    directories: tuple[str, ...]  # arenas of all hosts; the first one is `path`
    touched_bytes: int
    origin: ArenaOrigin = "new"
    lineage: Lineage | None = None

    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True

    @property
    def hosts(self) -> int:
        return len(self.directories)


class ArenaReused(Event, frozen=True):
    """A resume continues in the arena of a supervisor that died. trained: samples trained so far; batches: batches
    committed so far."""

    path: str
    trained: int
    batches: int

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class ArenaRejected(Event, frozen=True):
    """A resume does not use the arena of a supervisor that died."""

    reason: str

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class StartedFromCheckpoint(Event, frozen=True):
    """Rows and progress come from a checkpoint. is_foreign: it is a checkpoint of another run, given with `--from`."""

    checkpoint: str
    is_foreign: bool = False

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class RolledBack(Event, frozen=True):
    """The run goes back to a checkpoint or to its beginning. number: counts the roll backs that samples caused, from 1
    to at most `most`; 0: a lost host caused this one."""

    entry: RollBack
    number: int = 0
    most: int = 0

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True


class RollBackRefused(Event, frozen=True):
    """The run should roll back, but cannot."""

    reason: str

    category: ClassVar[Category] = "decision"
    durability: ClassVar[Durability] = "at_once"


class SupervisorStalled(Event, frozen=True):
    """The supervisor did not run for some time (it was stopped, or the machine slept): it extends all deadlines by this
    time."""

    stalled_s: float

    category: ClassVar[Category] = "fault"


class ProcessesKilled(Event, frozen=True):
    """The supervisor killed processes that did not exit at the end of the run."""

    processes: tuple[str, ...]

    category: ClassVar[Category] = "fault"


class DirectoryLeftBehind(Event, frozen=True):
    """A directory in shared memory could not be removed."""

    problem: str

    category: ClassVar[Category] = "fault"


class DirectoryNotRemoved(Event, frozen=True):
    """A directory that is no longer needed could not be removed."""

    path: str
    error: str

    category: ClassVar[Category] = "warning"


class DiskFull(Event, frozen=True):
    """Files cannot be written. is_training_held: training waits until they can be written."""

    files: tuple[str, ...]
    file_system: str  # its path and its free space
    error: str
    since_s: float  # seconds since the first failed write
    is_training_held: bool

    category: ClassVar[Category] = "warning"


class DiskFreed(Event, frozen=True):
    """The disk has space again, and all data that waited for space is written."""

    after_s: float  # seconds since the first failed write


class LoggerFailed(Event, frozen=True):
    """A logger of the run has ended before all values had arrived. `elastichost log` sends the rest."""

    logger: str
    problem: str

    category: ClassVar[Category] = "warning"


class RecordingStopped(Event, frozen=True):
    """decisions.jsonl is no longer written; `elastichost replay` cannot repeat later decisions."""

    problem: str

    category: ClassVar[Category] = "warning"


class HistoryUnavailable(Event, frozen=True):
    """The history of jobs could not be read or written."""

    error: str

    category: ClassVar[Category] = "warning"


class MeasurementsSetAside(Event, frozen=True):
    """A file of measurements of an earlier process was damaged. A new one was begun. file: name of the damaged one, in
    the same directory."""

    file: str

    category: ClassVar[Category] = "warning"


class MessageRefused(Event, frozen=True):
    """Messages of processes were not accepted. count: refused messages since the last event of this kind, including
    the one with this error."""

    error: str
    count: int = 1


class CommandRefused(Event, frozen=True):
    """A command was not accepted. command: "scale", "join", or "" if the command could not be decoded."""

    command: str
    error: str


class Warned(Event, frozen=True):
    """A warning that consists of a text; it has no fields with figures."""

    message: str

    category: ClassVar[Category] = "warning"
