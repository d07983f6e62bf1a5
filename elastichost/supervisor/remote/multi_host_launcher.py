"""One launcher for all hosts of a run: it passes each request to the launcher of its host and collects all events."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import LaunchEvent
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import Launcher, SpawnRequest
from elastichost.supervisor.launch.messages import PreparedMsg
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher

__all__ = ["HostsLauncher"]


class HostsLauncher:
    """Implements `launcher.Launcher`. here: the launcher of host 0. there: host number -> launcher."""

    def __init__(self, here: LocalLauncher, there: Mapping[int, RemoteLauncher]) -> None:
        self.here, self.there = here, dict(there)

    @property
    def _all(self) -> tuple[Launcher, ...]:
        return (self.here, *self.there.values())

    @property
    def prepared(self) -> PreparedMsg | None:
        """The report of the fork server of host 0, which builds the model first."""
        return self.here.prepared

    @property
    def server_pid(self) -> int:
        """The pid of the fork server of host 0."""
        return self.here.server_pid

    def spawn(self, request: SpawnRequest) -> None:
        launcher: Launcher = self.there.get(request.host, self.here)
        launcher.spawn(request)

    def kill(self, process: ProcessId, number: int = signal.SIGKILL) -> None:
        for launcher in self._all:
            launcher.kill(process, number)

    def processes(self) -> dict[ProcessId, int]:
        return {process: pid for launcher in self._all for process, pid in launcher.processes().items()}

    def descriptors(self) -> tuple[int, ...]:
        return tuple(descriptor for launcher in self._all for descriptor in launcher.descriptors())

    def events(self) -> list[LaunchEvent]:
        return [event for launcher in self._all for event in launcher.events()]

    def end_children(self) -> None:
        for launcher in self._all:
            launcher.end_children()

    def close(self) -> None:
        for launcher in self._all:
            launcher.close()
