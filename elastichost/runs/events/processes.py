"""Events about processes: the fork server, parameter servers, workers. Pure values."""

from __future__ import annotations

from typing import ClassVar, Literal

from elastichost.runs.events.base import Category, Durability, Event, ProcessEvent

__all__ = [
    "ForkServerLost",
    "ForkServerReady",
    "ForkServerThreads",
    "KillCause",
    "ProcessConnected",
    "ProcessDraining",
    "ProcessEnded",
    "ProcessKilling",
    "ProcessLost",
    "ProcessReady",
    "ProcessRepinned",
    "ProcessRepinning",
    "ProcessReported",
    "ProcessSlow",
    "ProcessStartFailed",
    "ProcessStarted",
    "ProcessStarting",
    "ProcessStopping",
    "ProcessUnreachable",
    "ReportNotKept",
]

# Why the supervisor kills a process. exit: it sent figures that cannot be right; hang, start: it does not work, or did
# not begin to; slow: its peers are faster; unwanted: it is not in the plan, and holds nothing.
KillCause = Literal["exit", "hang", "start", "slow", "unwanted"]


class ForkServerReady(Event, frozen=True):
    """The fork server has imported all libraries. compiled_kernels: it compiled all kernels as well, because their
    machine code could not be kept."""

    seconds: float
    compiled_kernels: bool = False


class ForkServerThreads(Event, frozen=True):
    """The fork server has more than one thread; a fork keeps one only."""

    threads: int

    category: ClassVar[Category] = "warning"


class ForkServerLost(Event, frozen=True):
    """The fork server ended; the supervisor starts another."""

    reason: str

    category: ClassVar[Category] = "fault"


class ProcessStarting(ProcessEvent, frozen=True):
    """The supervisor asks the fork server for a process."""

    reason: str
    cores: tuple[int, ...] = ()

    category: ClassVar[Category] = "decision"


class ProcessStarted(ProcessEvent, frozen=True):
    """The process exists."""

    pid: int

    is_replayed: ClassVar[bool] = True


class ProcessStartFailed(ProcessEvent, frozen=True):
    """The process could not be created."""

    reason: str

    category: ClassVar[Category] = "fault"
    is_replayed: ClassVar[bool] = True


class ProcessConnected(ProcessEvent, frozen=True):
    """The process has said hello to the supervisor."""


class ProcessReady(ProcessEvent, frozen=True):
    """The process has prepared everything and can work."""


class ProcessEnded(ProcessEvent, frozen=True):
    """The process ended as it was told to."""

    reason: str


class ProcessLost(ProcessEvent, frozen=True):
    """The process ended while it was needed. state: in which it was. reported: the type of the error that the process
    had reported before, ""."""

    pid: int
    code: int  # exit code; -n: signal n
    state: str
    reason: str
    reported: str = ""

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "soon"
    is_replayed: ClassVar[bool] = True


class ProcessReported(ProcessEvent, frozen=True):
    """The process reports the error with which it is about to exit. ends_run: the error is the user's to mend, and the
    run ends with it."""

    error_type: str
    message: str
    ends_run: bool = False

    category: ClassVar[Category] = "fault"


class ReportNotKept(ProcessEvent, frozen=True):
    """What the process reported could not be written to its file."""

    error: str

    category: ClassVar[Category] = "warning"


class ProcessKilling(ProcessEvent, frozen=True):
    """The supervisor kills the process."""

    cause: KillCause
    reason: str

    category: ClassVar[Category] = "decision"


class ProcessDraining(ProcessEvent, frozen=True):
    """The worker finishes its batch, takes no more samples, and ends."""

    reason: str

    category: ClassVar[Category] = "decision"


class ProcessStopping(ProcessEvent, frozen=True):
    """The process is told to stop."""

    reason: str

    category: ClassVar[Category] = "decision"


class ProcessRepinning(ProcessEvent, frozen=True):
    """The process is told to use other cores, or another number of threads."""

    cores: tuple[int, ...]
    threads: int

    category: ClassVar[Category] = "decision"


class ProcessRepinned(ProcessEvent, frozen=True):
    """The process uses these cores now."""

    cores: tuple[int, ...]
    threads: int


class ProcessSlow(ProcessEvent, frozen=True):
    """The worker is slower than its peers; it is not replaced."""

    reason: str

    category: ClassVar[Category] = "decision"


class ProcessUnreachable(ProcessEvent, frozen=True):
    """A message could not be sent to the process: it is ending."""

    message_type: str
    error: str

    category: ClassVar[Category] = "fault"
