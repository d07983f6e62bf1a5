"""Who starts processes, sees them end, and leaves nothing of them: on this machine, on another one, or on several; and
what is asked of it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import LaunchEvent
from elastichost.supervisor.launch.messages import PreparedMsg

__all__ = ["Entries", "Launcher", "SpawnRequest"]


@dataclass(frozen=True, slots=True)
class Entries:
    """What the processes run, by name: the supervisor imports none of it. Tests may name others."""

    worker: str = "elastichost.worker.main:main"
    server: str = "elastichost.ps.main:main"
    probe: str = "elastichost.worker.probe:main"
    imports: tuple[str, ...] = (
        "torch",
        "torchrec",
        "elastichost.arena.kernels",
        *(f"elastichost.models.networks.{name}" for name in ("dcn", "deepfm", "dlrm", "wide_deep", "xdeepfm")),
        "elastichost.worker.main",
        "elastichost.worker.probe",
        "elastichost.ps.main",
    )
    calls: tuple[str, ...] = (
        "elastichost.arena.kernels:warm",
        "elastichost.datasets.warm:warm_kernels",
        "elastichost.worker.model.interaction_kernels:warm",
    )

    def of(self, role: str) -> str:
        return {"worker": self.worker, "server": self.server, "probe": self.probe}[role]


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A process that calls `entry` ("module:function") with `arguments`, which are JSON, on a host of the run. log: a
    file here, which is appended to; cores: those it may use, () for all; environment: added to the fork server's."""

    process: ProcessId
    entry: str
    arguments: bytes
    log: Path
    host: int = 0
    cores: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Launcher(Protocol):
    """Nothing here blocks, except `end_children` and `close`."""

    @property
    def prepared(self) -> PreparedMsg | None:
        """What the fork server said of its imports; None: not done yet."""
        ...

    def spawn(self, request: SpawnRequest) -> None:
        """Asks for a process; `events` says Started or StartFailed."""
        ...

    def kill(self, process: ProcessId, number: int = signal.SIGKILL) -> None:
        """Sends a signal to a process and, with SIGKILL, to whatever it started. No effect once it has ended."""
        ...

    def processes(self) -> dict[ProcessId, int]:
        """Processes that have not been seen to end, with their pids on their hosts."""
        ...

    def descriptors(self) -> tuple[int, ...]:
        """To wait on."""
        ...

    def events(self) -> list[LaunchEvent]:
        """What has happened since the last call."""
        ...

    def end_children(self, grace_s: float = 0.0) -> None:
        """SIGTERM, after `grace_s` SIGKILL. Returns when all have ended."""
        ...

    def close(self, grace_s: float = 2.0) -> None:
        """Ends everything that was started."""
        ...
