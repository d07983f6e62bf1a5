"""The interface of launchers, which start processes on this machine, on another one or on several, and the request for
a process."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from elastichost import models
from elastichost.plan import ProcessId
from elastichost.specs import Precision
from elastichost.supervisor.launch.events import LaunchEvent
from elastichost.supervisor.launch.messages import PreparedMsg

__all__ = ["EMULATED", "Entries", "Launcher", "SpawnRequest"]

BFLOAT16_KERNELS = "elastichost.worker.model.fusion:warm_bfloat16"


@dataclass(frozen=True, slots=True)
class Entries:
    """The functions that processes call, as "module:function", and what the fork server imports and calls before. They
    are named, because the supervisor imports none of these modules. Tests may name others."""

    worker: str = "elastichost.worker.main:main"
    server: str = "elastichost.ps.main:main"
    reader: str = "elastichost.worker.readers.main:main"
    probe: str = "elastichost.worker.probe:main"
    imports: tuple[str, ...] = (
        "torch",
        "torchrec",
        "elastichost.arena.kernels",
        *(f"elastichost.models.networks.{name}" for name in models.__all__),
        "elastichost.worker.main",
        "elastichost.worker.probe",
        "elastichost.worker.readers.main",
        "elastichost.ps.main",
    )
    calls: tuple[str, ...] = (
        "elastichost.arena.kernels:warm",
        "elastichost.datasets.warm:warm_kernels",
        "elastichost.worker.model.fusion:warm",
    )

    def with_precision(self, precision: Precision) -> Entries:
        """These entries for a job with this `train.precision`: bfloat16 has kernels of its own."""
        if precision == "float32" or not self.calls:
            return self
        return replace(self, calls=(*self.calls, BFLOAT16_KERNELS))

    def of(self, role: str) -> str:
        """The function of a role: "worker", "server", "reader" or "probe"."""
        return {"worker": self.worker, "server": self.server, "reader": self.reader, "probe": self.probe}[role]


# Of a run in which computing is emulated. The fork server does not import torch, because emulated processes compute
# nothing and hundreds of them are forked.
EMULATED = Entries(
    worker="elastichost.emulation.main:worker",
    server="elastichost.emulation.main:server",
    probe="elastichost.emulation.main:probe",
    imports=("elastichost.arena.kernels", "elastichost.emulation.main"),
    calls=("elastichost.arena.kernels:warm", "elastichost.emulation.main:warm"),
)


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A request for a process that calls `entry` ("module:function") with `arguments` (JSON). host: number of its host
    in the run. log: a file on this machine, which is appended to. cores: those that it may use, () for all.
    environment: variables added to those of the fork server."""

    process: ProcessId
    entry: str
    arguments: bytes
    log: Path
    host: int = 0
    cores: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class Launcher(Protocol):
    """Starts processes and reports how they end. Only `end_children` and `close` block."""

    @property
    def prepared(self) -> PreparedMsg | None:
        """The fork server's report of its imports; None until it has imported."""
        ...

    def spawn(self, request: SpawnRequest) -> None:
        """Requests a process. `events` later gives Started or StartFailed; LogNotOpened before, if its log cannot be
        opened. Raises no OSError."""
        ...

    def kill(self, process: ProcessId, number: int = signal.SIGKILL) -> None:
        """Sends a signal to a process; SIGKILL is also sent to all that it started. Does nothing once it has ended."""
        ...

    def processes(self) -> dict[ProcessId, int]:
        """The processes that have started and whose end was not seen yet, with their pids on their hosts."""
        ...

    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to wait on: one is readable when `events` has something new."""
        ...

    def events(self) -> list[LaunchEvent]:
        """What has happened since the last call. Never waits."""
        ...

    def end_children(self) -> None:
        """Sends SIGKILL to all processes. Returns when all have ended, or after some seconds."""
        ...

    def close(self) -> None:
        """Ends all that was started, the fork server or agent included."""
        ...
