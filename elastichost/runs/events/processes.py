"""Events about processes: the fork server, parameter servers, workers, and the GPUs that they use. Pure values."""

from __future__ import annotations

from typing import ClassVar, Literal

from elastichost.runs.events.base import Category, Durability, Event, ProcessEvent

__all__ = [
    "ForkServerLost",
    "ForkServerReady",
    "ForkServerThreads",
    "GpuLost",
    "GpuShareExceeded",
    "GpuUnreadable",
    "KernelsMissing",
    "KillCause",
    "LogNotKept",
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

# Why the supervisor kills a process. exit: it reported impossible figures; hang: it makes no progress; start: it did
# not become ready in time; slow: its peers are faster; unwanted: it is not in the plan and holds nothing.
KillCause = Literal["exit", "hang", "start", "slow", "unwanted"]


class KernelsMissing(Event, frozen=True):
    """No compiled kernels are kept on this host yet, so the fork server compiles them. compile_s: about the time of one
    core that it takes."""

    compile_s: float


class ForkServerReady(Event, frozen=True):
    """The fork server has imported all libraries. compiled_kernels: it also compiled all kernels, because their machine
    code was not kept, or cannot be."""

    seconds: float
    compiled_kernels: bool = False


class ForkServerThreads(Event, frozen=True):
    """The fork server has more than one thread; a forked process keeps only one of them."""

    threads: int

    category: ClassVar[Category] = "warning"


class ForkServerLost(Event, frozen=True):
    """The fork server exited; the supervisor starts a new one."""

    reason: str

    category: ClassVar[Category] = "fault"


class ProcessStarting(ProcessEvent, frozen=True):
    """The supervisor requests a process from the fork server."""

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
    """The process sent its first message to the supervisor."""


class ProcessReady(ProcessEvent, frozen=True):
    """The process finished its preparation and can work."""


class ProcessEnded(ProcessEvent, frozen=True):
    """The process exited as requested."""

    reason: str


class ProcessLost(ProcessEvent, frozen=True):
    """The process exited while it was needed. state: its state before. reported: type of the error that the process
    reported before it exited, or ""."""

    pid: int
    code: int  # exit code; -n: it was ended by signal n
    state: str
    reason: str
    reported: str = ""

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "soon"
    is_replayed: ClassVar[bool] = True


class ProcessReported(ProcessEvent, frozen=True):
    """The process reported the error with which it is about to exit. ends_run: the user has to correct the error, and
    the run ends with it."""

    error_type: str
    message: str
    ends_run: bool = False

    category: ClassVar[Category] = "fault"


class ReportNotKept(ProcessEvent, frozen=True):
    """The error report of the process could not be written to its file."""

    error: str

    category: ClassVar[Category] = "warning"


class LogNotKept(ProcessEvent, frozen=True):
    """The log file of the process could not be opened. The process starts without it, so what it prints is lost."""

    error: str

    category: ClassVar[Category] = "warning"


class ProcessKilling(ProcessEvent, frozen=True):
    """The supervisor kills the process."""

    cause: KillCause
    reason: str

    category: ClassVar[Category] = "decision"


class ProcessDraining(ProcessEvent, frozen=True):
    """The worker is asked to finish its batch, take no more samples, and exit."""

    reason: str

    category: ClassVar[Category] = "decision"


class ProcessStopping(ProcessEvent, frozen=True):
    """The process is asked to stop."""

    reason: str

    category: ClassVar[Category] = "decision"


class ProcessRepinning(ProcessEvent, frozen=True):
    """The process is asked to use other cores or another number of threads."""

    cores: tuple[int, ...]
    threads: int

    category: ClassVar[Category] = "decision"


class ProcessRepinned(ProcessEvent, frozen=True):
    """The process now uses these cores and threads."""

    cores: tuple[int, ...]
    threads: int


class ProcessSlow(ProcessEvent, frozen=True):
    """The worker is slower than its peers; it is not replaced."""

    reason: str

    category: ClassVar[Category] = "decision"


class ProcessUnreachable(ProcessEvent, frozen=True):
    """A message could not be sent to the process, because it is exiting."""

    message_type: str
    error: str

    category: ClassVar[Category] = "fault"


class GpuUnreadable(Event, frozen=True):
    """NVML does not tell about the GPUs of the run any more, or never did; the run goes on without their figures."""

    reason: str

    category: ClassVar[Category] = "warning"


class GpuLost(Event, frozen=True):
    """NVML tells that a GPU of the run has fallen off the bus. The run goes on without it: its worker leaves the
    plan."""

    gpu: int
    name: str
    reason: str

    category: ClassVar[Category] = "warning"


class GpuShareExceeded(ProcessEvent, frozen=True):
    """The process has more memory of its GPU than its share and the context of CUDA take."""

    gpu: int
    used_bytes: int
    share_bytes: int

    category: ClassVar[Category] = "warning"
