"""Every error elastichost raises on purpose, with the exit code the command line ends with.

An error names what it is about (file, row, key, table, process) and says what to do next. Processes
report their errors to the supervisor as a `FailureReportMsg` (see `wire.control`), so an error raised in
a worker reaches the screen as the same typed error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "ArenaError",
    "ArenaFullError",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "ElastichostError",
    "ExitCode",
    "GpuMemoryError",
    "HangError",
    "HistoryError",
    "HostLostError",
    "IdOutOfRangeError",
    "IllegalTransitionError",
    "JobFailedError",
    "MemoryBudgetError",
    "ModelError",
    "NonFiniteError",
    "PreflightError",
    "ProtocolError",
    "RestartBudgetError",
    "SampleRange",
]


class ExitCode(IntEnum):
    """Exit codes of `python -m elastichost`; they are part of the interface."""

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
    """Base of all errors raised on purpose. `hint` says what to do next."""

    exit_code: ExitCode = ExitCode.JOB_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  -> {self.hint}" if self.hint else self.message


class ConfigError(ElastichostError):
    """The job file or the command line is wrong. `problems` holds every problem found, one line each."""

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
    """Sync mode: a CPU has other features than the one that the run began on, so the same work gives other bits."""


class DataError(PreflightError):
    """A data file is not what the job file says; names file, row and column."""


class IdOutOfRangeError(DataError):
    """An id of a fixed-size table is outside [0, rows) and the table says `out_of_range = "error"`."""


class ModelError(PreflightError):
    """The user's model cannot be imported or built. `traceback_text` is the user's own traceback."""

    def __init__(self, message: str, *, traceback_text: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.traceback_text = traceback_text


class JobFailedError(ElastichostError):
    """The job failed while it ran; the cause is in the message."""


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
    """Loss or gradient became NaN or infinite and the job does not skip such batches. `samples`: the batch, where it
    is one of the training data."""

    def __init__(self, message: str, *, samples: SampleRange | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.samples = samples


class GpuMemoryError(JobFailedError):
    """A GPU has no memory left for what a process wants to allocate."""


class RestartBudgetError(JobFailedError):
    """A process died more often than its restart budget allows. last_error: class name of what it reported last, "":
    it reported nothing."""

    exit_code = ExitCode.RESTART_BUDGET

    def __init__(self, message: str, *, last_error: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.last_error = last_error


class HangError(JobFailedError):
    """A process stopped making progress again and again, whenever it was restarted."""

    exit_code = ExitCode.HANG


class HostLostError(JobFailedError):
    """A machine of the run does not answer any more, or has ended its agent."""


class DiskFullError(JobFailedError):
    """There is no space for a file without which the run can not go on. The run waits; this ends it only when it is
    told to stop meanwhile."""


class ArenaError(ElastichostError):
    """The shared-memory arena is missing, malformed, or belongs to another job."""


class ArenaFullError(ArenaError):
    """No space left for the arena (ENOSPC from /dev/shm or ELASTICHOST_ARENA_DIR)."""

    exit_code = ExitCode.PREFLIGHT


class MemoryBudgetError(ArenaFullError):
    """A job that trains would need more memory than `resources.memory` allows it."""

    exit_code = ExitCode.JOB_FAILED


class CheckpointError(ElastichostError):
    """A checkpoint is missing, incomplete or corrupt; names the file and the block."""


class CheckpointSpaceError(CheckpointError):
    """The disk of the checkpoint is full: it may have space later."""


class HistoryError(ElastichostError):
    """The file in which finished jobs are remembered cannot be used; no reason to stop a run."""


class ProtocolError(ElastichostError):
    """A message that this process must not accept: malformed, wrong job, unknown type, oversize."""


class IllegalTransitionError(ElastichostError):
    """A state machine got an event its state does not allow; a bug in the caller, never in the data."""

    def __init__(self, machine: str, state: str, event: str) -> None:
        super().__init__(f"{machine}: event {event!r} is not allowed in state {state!r}")
        self.machine, self.state, self.event = machine, state, event
