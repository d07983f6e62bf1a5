"""What a launcher reports about processes, on all hosts."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass

from elastichost.plan import ProcessId

__all__ = ["AgentLost", "Exited", "ForkServerExited", "LaunchEvent", "LogNotOpened", "StartFailed", "Started"]


@dataclass(frozen=True, slots=True)
class Started:
    """A requested process runs. pid: on its host."""

    process: ProcessId
    pid: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    """A requested process could not be started. number: errno of the error; 0: it was none of the operating system."""

    process: ProcessId
    reason: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class LogNotOpened:
    """The log of a requested process could not be opened, so the process starts without it: what it prints is lost.
    log: path of the log. error: why. number: its errno."""

    process: ProcessId
    log: str
    error: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Exited:
    """A process has ended. code: >= 0 is an exit code, < 0 is minus the number of a signal. cpu_s: CPU seconds of the
    process and of its descendants that were waited for."""

    process: ProcessId
    pid: int
    code: int
    cpu_s: float = 0.0

    @property
    def cause(self) -> str:
        """The code as text, for example `signal 9 (SIGKILL)`."""
        if self.code >= 0:
            return f"exit code {self.code}"
        with contextlib.suppress(ValueError):
            return f"signal {-self.code} ({signal.Signals(-self.code).name})"
        return f"signal {-self.code}"


@dataclass(frozen=True, slots=True)
class ForkServerExited:
    """The fork server ended unexpectedly, and another one was started. The processes that it forked still run."""

    reason: str


@dataclass(frozen=True, slots=True)
class AgentLost:
    """Another machine of the run is lost: its agent has ended or does not answer. An event with the end of each of its
    processes follows. name: of the machine in messages."""

    host: int
    name: str
    reason: str


LaunchEvent = Started | StartFailed | LogNotOpened | Exited | ForkServerExited | AgentLost
