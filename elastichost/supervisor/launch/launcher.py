"""Who starts processes, sees them end, and leaves nothing of them: on this machine, on another one, or on several."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import LaunchEvent
from elastichost.supervisor.launch.messages import PreparedMsg

__all__ = ["Launcher"]


class Launcher(Protocol):
    """Nothing here blocks, except `end_children` and `close`."""

    @property
    def prepared(self) -> PreparedMsg | None:
        """What the fork server said of its imports; None: not done yet."""
        ...

    def spawn(
        self,
        process: ProcessId,
        entry: str,
        arguments: bytes,
        log: Path,
        *,
        host: int = 0,
        cores: tuple[int, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Asks for a process on a host of the run; `events` says Started or StartFailed. `arguments` is JSON, `log` is
        a file here, which is appended to."""
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
