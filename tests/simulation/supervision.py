"""Simulates what the supervisor needs outside its own process: starts of processes, journal, files, commands."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import numpy as np

from elastichost.checkpoint.blocks import BlockRecord
from elastichost.plan import ProcessId
from elastichost.ps.snapshot import SnapshotResult
from elastichost.runs.events import AnyEvent
from elastichost.runs.events.text import text_of
from elastichost.supervisor.launch.events import Exited, LaunchEvent, Started
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.supervisor import Supervisor
from elastichost.wire.commands import Command
from elastichost.wire.control import ModelDescribedMsg
from tests.simulation.computing import DENSE, MODEL
from tests.simulation.memory import MemoryPath
from tests.simulation.network import Endpoint
from tests.simulation.world import Actor, World, active, current

__all__ = ["Checkpoints", "SimCommands", "SimJournal", "SimLauncher", "SimSnapshotWriter", "SimSupervisor", "Spawner"]

FIRST_PID = 1 << 30  # a pid that no process of this host has
Spawner = Callable[[Actor, bytes], int]  # runs a worker or PS from its start to its end


class SimSupervisor(Supervisor):
    """The real supervisor without a probe of the model, which is given."""

    def _describe_model(self) -> tuple[ModelDescribedMsg, Any]:
        return ModelDescribedMsg(MODEL), DENSE.copy()


class SimLauncher(Endpoint):
    """Stands for `supervisor.launch.fork_server_client.LocalLauncher`. Starts and exits of processes are reported after
    a while."""

    def __init__(self, owner: Actor, entries: dict[str, Spawner]) -> None:
        super().__init__(owner)
        self._entries = entries
        self.actors: dict[ProcessId, Actor] = {}
        self.prepared = None

    def spawn(self, request: SpawnRequest) -> None:
        world, process, arguments = active(), request.process, request.arguments
        actor = Actor(str(process), process, FIRST_PID + len(self.actors))
        self.actors[process] = actor
        run = self._entries[process.role]

        def start() -> None:
            self.put(Started(process, actor.pid))
            world.start(actor, lambda: run(actor, arguments))

        world.later(0.002 + 0.01 * world.random.random(), start)

    def exited(self, actor: Actor, code: int) -> None:
        """A process has ended; the supervisor gets its exit later."""
        assert actor.process is not None
        event = Exited(actor.process, actor.pid, code)
        active().later(0.002 + 0.01 * active().random.random(), lambda: self.put(event))

    def kill(self, process: ProcessId, number: int = signal.SIGKILL) -> None:
        actor = self.actors.get(process)
        if actor is not None and number == signal.SIGKILL:
            active().later(1e-4, lambda: active().kill(actor))

    def events(self) -> list[LaunchEvent]:
        events = list(self.queue)
        self.queue.clear()
        return events

    def processes(self) -> dict[ProcessId, int]:
        return {process: actor.pid for process, actor in self.actors.items() if actor.is_alive}

    def descriptors(self) -> tuple[Endpoint, ...]:
        return (self,)

    def live(self, role: str) -> list[Actor]:
        return [a for p, a in self.actors.items() if p.role == role and a.is_alive and not a.is_killed]


class SimCommands(Endpoint):
    """Stands for `wire.commands.CommandServer`."""

    address = "simulated"

    def receive(self) -> tuple[bytes, Command] | None:
        return self.queue.popleft() if self.queue else None

    def reply(self, peer: bytes, reply: object) -> bool:
        active().note(f"answers {reply}")
        return True


class SimJournal:
    """Stands for `runs.journal.Journal`: lines are written to the history's log."""

    problem = ""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.listeners: list[Callable[[AnyEvent], None]] = []

    def write(self, event: AnyEvent, cause: str = "") -> None:
        self.events.append(event)
        for listener in self.listeners:
            listener(event)
        active().note(f"{event.kind} ({cause}): {text_of(event)}")

    def sync(self, now_s: float) -> None:
        """Does nothing: there is no disk."""


# --- checkpoints ------------------------------------------------------------------------------------------------------


@dataclass
class Checkpoints:
    """The checkpoints of one history. blocks: path of the cut -> what PS have written, by (kind, owner, bucket). check:
    is called with each complete checkpoint."""

    check: Callable[[Any, dict[tuple[str, int, int], Any]], None]
    blocks: dict[str, dict[tuple[str, int, int], Any]] = field(default_factory=dict)
    committed: int = 0

    def new_staging(self, checkpoints: PurePosixPath, number: int) -> MemoryPath:
        path = MemoryPath(f"{checkpoints}/{number}")
        self.blocks[str(path)] = {}
        return path

    def commit(self, staging: MemoryPath, final: PurePosixPath, manifest: Any) -> None:
        self.committed += 1
        self.check(manifest, self.blocks.pop(str(staging)))


def _checkpoints() -> Checkpoints:
    checkpoints = active().checkpoints
    assert isinstance(checkpoints, Checkpoints)
    return checkpoints


class SimSnapshotWriter:
    """Stands for `ps.snapshot.SnapshotWriter`."""

    def __init__(self) -> None:
        self.descriptor = Endpoint(current())
        self.kept_bytes = 0

    def reserve_is_due(self, now_s: float) -> bool:
        return True

    def reserve(self, size_bytes: int) -> None:
        """Does nothing: there is always space."""

    def space(self) -> Any:
        return SimpleNamespace(copy=np.copy)

    def start(self, cut: int, path: MemoryPath, blocks: list[Any]) -> None:
        world = active()
        records = tuple(
            BlockRecord(b.kind, b.owner, b.bucket, path.name, 0, "<f4", tuple(b.array.shape), 0) for b in blocks
        )

        def written() -> None:
            place = _checkpoints().blocks.get(str(path.parent))
            if place is not None and not self.descriptor.owner.is_killed:
                place.update({(b.kind, b.owner, b.bucket): b.array for b in blocks})
                self.descriptor.put(SnapshotResult(cut, records, None))

        world.later(0.001 + 0.05 * world.random.random(), written)

    def result(self) -> SnapshotResult | None:
        return self.descriptor.queue.popleft() if self.descriptor.queue else None

    def close(self) -> None:
        """Does nothing: there is no thread."""


def stop_signals(world: World, owner: Actor) -> Any:
    """Stands for `host.stop_signals.StopSignals`; `count = 1` and `descriptor.put` send a signal."""
    descriptor = Endpoint(owner)
    return SimpleNamespace(
        count=0, last=0, name="SIGINT", exit_code=130, descriptor=descriptor, clear=descriptor.queue.clear
    )
