"""What becomes of processes, on whichever host they were asked for."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass

from elastichost.plan import ProcessId

__all__ = ["AgentLost", "Exited", "ForkServerExited", "LaunchEvent", "StartFailed", "Started"]


@dataclass(frozen=True, slots=True)
class Started:
    process: ProcessId
    pid: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    process: ProcessId
    reason: str


@dataclass(frozen=True, slots=True)
class Exited:
    """`code` >= 0 is an exit code, < 0 minus a signal. cpu_s: CPU seconds of it, and of all that ended below it."""

    process: ProcessId
    pid: int
    code: int
    cpu_s: float = 0.0

    @property
    def cause(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        with contextlib.suppress(ValueError):
            return f"signal {-self.code} ({signal.Signals(-self.code).name})"
        return f"signal {-self.code}"


@dataclass(frozen=True, slots=True)
class ForkServerExited:
    """It ended by itself; it has been started again, the processes go on."""

    reason: str


@dataclass(frozen=True, slots=True)
class AgentLost:
    """Another machine of the run does not answer any more. The end of each of its processes follows."""

    host: int
    name: str
    reason: str


LaunchEvent = Started | StartFailed | Exited | ForkServerExited | AgentLost
