"""Every error that elastichost raises on purpose, and the exit code of the command line for it.

The message of an error names the file, row, key, table or process that is wrong; its hint states what to do.
Processes send their errors to the supervisor as a `FailureReportMsg` (see `wire.control`), so an error raised in a
worker reaches the user as the same typed error.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module

__all__ = [
    "ArenaError",
    "ArenaFullError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "ElastichostError",
    "ExitCode",
    "GpuLostError",
    "GpuMemoryError",
    "HangError",
    "HistoryError",
    "HostLostError",
    "IdOutOfRangeError",
    "IllegalTransitionError",
    "JobFailedError",
    "MemoryBudgetError",
    "ModelError",
    "ModelLostError",
    "NonFiniteError",
    "PreflightError",
    "ProtocolError",
    "RestartBudgetError",
    "ResumeLaterError",
    "SampleRange",
    "SourceGoneError",
    "lines_for_notebook",
    "named_error",
]

NOT_USERS = frozenset({"IPython", "elastichost", "ipykernel"})  # packages whose frames a notebook need not show


class ExitCode(IntEnum):
    """Exit codes of `python -m elastichost`. They are part of the interface and do not change."""

    DONE = 0
    JOB_FAILED = 1
    USAGE = 2
    PREFLIGHT = 3
    RESTART_BUDGET = 4
    HANG = 5
    STOPPED_RESUMABLE = 75
    INTERRUPTED = 130
    TERMINATED = 143


class ElastichostError(Exception):
    """Base of all errors that are raised on purpose. `hint`: what the user can do next."""

    exit_code: ExitCode = ExitCode.JOB_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of its own traceback."""
        return lines_for_notebook(self)


class ConfigError(ElastichostError):
    """The job file or the command line is wrong. `problems`: every problem that was found, one line each."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = problems

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {problem}" for problem in self.problems)]
        if self.hint:
            lines.append(f"  -> {self.hint}")
        return "\n".join(lines)


class PreflightError(ElastichostError):
    """The host or the data cannot run this job (missing file, full /dev/shm, broken install)."""

    exit_code = ExitCode.PREFLIGHT


class CpuDiffersError(PreflightError):
    """Sync mode: the CPU has other features than the CPU that the run began on, so it would compute other bits."""


class DataError(PreflightError):
    """A data file does not match the job file. The message names file, row and column."""


class SourceGoneError(DataError):
    """The server or store that holds the data does not answer. It may do so later."""


class ResumeLaterError(PreflightError):
    """A run cannot be resumed now, and nothing is wrong with it: its data cannot be reached."""

    exit_code = ExitCode.STOPPED_RESUMABLE


class IdOutOfRangeError(DataError):
    """An id of a table with a fixed number of rows is outside [0, rows), and the table has `out_of_range = "error"`."""


class ModelError(PreflightError):
    """The user's model cannot be imported, built or called. `traceback_text`: the traceback within the user's code."""

    def __init__(self, message: str, *, traceback_text: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.traceback_text = traceback_text


class JobFailedError(ElastichostError):
    """The job failed while it ran. The message has the cause."""


@dataclass(frozen=True, slots=True)
class SampleRange:
    """Positions [start, stop) of one dataset unit in one epoch."""

    epoch: int
    unit: int
    start: int
    stop: int

    def overlaps(self, other: SampleRange) -> bool:
        is_near = (self.epoch, self.unit) == (other.epoch, other.unit)
        return is_near and self.start < other.stop and other.start < self.stop

    def __str__(self) -> str:
        return f"positions {self.start} to {self.stop} of unit {self.unit}"


class NonFiniteError(JobFailedError):
    """The loss or a gradient of a batch is NaN or infinite, and the job does not skip such batches. `samples`: the
    positions of the batch; None when it is not a batch of training data."""

    def __init__(self, message: str, *, samples: SampleRange | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.samples = samples


class GpuMemoryError(JobFailedError):
    """A GPU has too little free memory for an allocation of a process."""


class GpuLostError(JobFailedError):
    """A GPU that a process was given does not answer, or the run cannot go on without a GPU that is lost."""


class RestartBudgetError(JobFailedError):
    """A process ended more often than its restart budget allows. last_error: class name of the error that it reported
    last; "" when it reported none."""

    exit_code = ExitCode.RESTART_BUDGET

    def __init__(self, message: str, *, last_error: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.last_error = last_error


class HangError(JobFailedError):
    """A process hung more often than its restart budget allows."""

    exit_code = ExitCode.HANG


class HostLostError(JobFailedError):
    """A machine of the run no longer answers, or its agent has ended."""


class ModelLostError(JobFailedError):
    """The model was in memory of a GPU that was freed or lost. The run goes back to its newest checkpoint."""


class DiskFullError(JobFailedError):
    """The disk has no space for a file that the run needs. The run waits for space; this error ends it only when it is
    stopped while it waits."""


class ArenaError(ElastichostError):
    """The shared-memory arena is missing, malformed, or belongs to another job."""


class ArenaFullError(ArenaError):
    """The file system of the arena has no space (ENOSPC from /dev/shm or ELASTICHOST_ARENA_DIR)."""

    exit_code = ExitCode.PREFLIGHT


class MemoryBudgetError(ArenaFullError):
    """A job needs more memory while it trains than `resources.memory` allows."""

    exit_code = ExitCode.JOB_FAILED


class CheckpointError(ElastichostError):
    """A checkpoint is missing, incomplete or corrupt. The message names the file and the block."""


class CheckpointSpaceError(CheckpointError):
    """The disk of the checkpoint is full. Space may become free later."""


class HistoryError(ElastichostError):
    """The file with the records of finished jobs cannot be used. A run continues without it."""


class ProtocolError(ElastichostError):
    """A message that the process refuses: it is malformed, of another job, of unknown type, or too large."""


class IllegalTransitionError(ElastichostError):
    """A state machine got an event that is not allowed in its state. The cause is a bug in the calling code, never
    the data."""

    def __init__(self, machine: str, state: str, event: str) -> None:
        super().__init__(f"{machine}: event {event!r} is not allowed in state {state!r}")
        self.machine, self.state, self.event = machine, state, event


def named_error(class_name: str, message: str, *, hint: str = "") -> ElastichostError:
    """The error that another process reported, of the same class. One that is no class of this module, or that cannot
    be made of a message, becomes JobFailedError; its message then has the name."""
    kind = _MADE_OF_A_MESSAGE.get(class_name)
    if kind is None:
        return JobFailedError(f"{class_name}: {message}", hint=hint)
    return kind(message, hint=hint)


_MADE_OF_A_MESSAGE = {
    name: kind
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, ElastichostError) and kind is not IllegalTransitionError
}


def lines_for_notebook(error: BaseException) -> list[str]:
    """An error as a notebook shows it: its notes, the lines of the user's own code that led to it, and the message as
    in a shell. Call it in IPython only."""
    name_of_cell = import_module("IPython").get_ipython().compile.format_code_name
    lines = [line for note in getattr(error, "__notes__", ()) for line in (*note.rstrip().splitlines(), "")]
    for frame, line in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).partition(".")[0] in NOT_USERS:
            continue
        file = frame.f_code.co_filename
        named = name_of_cell(file)
        place = " ".join(named) if named is not None else f"File {file}"
        text = traceback.FrameSummary(file, line, frame.f_code.co_name).line
        shown = [f"{place}, line {line}", f"----> {line} {text}"]
        lines += shown if shown != lines[-2:] else []  # a comprehension has a frame of its own
    return [*lines, "", f"{type(error).__name__}: {error}"]
