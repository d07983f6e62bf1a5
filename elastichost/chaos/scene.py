"""What is known of a run from outside: its processes, folded from the events of its journal. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from elastichost.metrics import JournalEvent
from elastichost.plan import ProcessId

__all__ = ["Life", "Scene", "process_of"]

_PROCESS = re.compile(r"(worker|server|probe)-(\d+)\.(\d+)\b")


def process_of(event: JournalEvent) -> ProcessId | None:
    """The life that an event is about: the first one its text names."""
    found = _PROCESS.search(event.text)
    return ProcessId(found[1], int(found[2]), int(found[3])) if found else None


@dataclass(slots=True)
class Life:
    """One life of a process; times are of the monotonic clock, None: not yet."""

    process: ProcessId
    pid: int
    started_s: float
    ready_s: float | None = None
    ended_s: float | None = None
    is_lost: bool = False

    @property
    def is_there(self) -> bool:
        return self.ended_s is None

    @property
    def works(self) -> bool:
        return self.ready_s is not None and self.is_there


@dataclass(slots=True)
class Scene:
    """`generation` counts the supervisors of the run, from 1; lives of an earlier one are gone."""

    generation: int = 0
    run_ids: list[str] = field(default_factory=list)
    arena: str = ""
    wanted: frozenset[str] = frozenset()  # names of the processes of the newest plan
    access: str = ""
    checkpoints: int = 0
    state: str = ""  # how the run ended; "" while it goes on
    fork_server_ready_s: float | None = None
    fork_servers_lost: int = 0
    lost_hosts: list[str] = field(default_factory=list)  # their names, in the order they were lost
    _lives: dict[str, list[Life]] = field(default_factory=dict)

    def take(self, event: JournalEvent) -> None:
        """Folds in the next event."""
        match event.kind:
            case "run_started":
                self.generation += 1
                self.run_ids.append(str(event.data.get("run_id", "")))
                self._lives.clear()
                self.state, self.arena, self.fork_server_ready_s = "", "", None
            case "run_ended":
                self.state = event.text
            case "checkpoint":
                self.checkpoints += 1
            case "arena":
                self.arena = str(event.data.get("path", ""))
            case "fork_server":
                self.fork_server_ready_s = event.monotonic_s
            case "fork_server_lost":
                self.fork_servers_lost += 1
                self.fork_server_ready_s = None
            case "host_lost":
                self.lost_hosts.append(str(event.data.get("name", "")))
            case "decision" if isinstance(names := event.data.get("processes"), list):
                self.wanted = frozenset(map(str, names))
                self.access = str(event.data.get("access", self.access))
            case "process_started" | "ready" | "process_ended" | "process_lost":
                self._take_life(event)

    def _take_life(self, event: JournalEvent) -> None:
        process = process_of(event)
        if process is None:
            return
        if event.kind == "process_started":
            pid = _whole(event.data.get("pid"))
            self._lives.setdefault(process.name, []).append(Life(process, pid, event.monotonic_s))
            return
        life = self.life(process)
        if life is None:
            return
        if event.kind == "ready":
            life.ready_s = event.monotonic_s
        else:
            life.ended_s, life.is_lost = event.monotonic_s, event.kind == "process_lost"

    def life(self, process: ProcessId) -> Life | None:
        return next((life for life in self._lives.get(process.name, ()) if life.process == process), None)

    def newest(self, name: str) -> Life | None:
        lives = self._lives.get(name)
        return lives[-1] if lives else None

    def working(self, role: str) -> tuple[Life, ...]:
        """The newest lives of a role that are ready and have not ended, by index."""
        newest = (lives[-1] for name, lives in sorted(self._lives.items()) if name.startswith(f"{role}-"))
        return tuple(sorted((life for life in newest if life.works), key=lambda life: life.process.index))

    @property
    def pids(self) -> frozenset[int]:
        """Of everyone that the present supervisor has started."""
        return frozenset(life.pid for lives in self._lives.values() for life in lives)

    def wants(self, life: Life) -> bool:
        """The newest plan has a process of this name."""
        return life.process.name in self.wanted

    def count(self, role: str) -> int:
        """How many of that role the newest plan has."""
        return sum(name.startswith(f"{role}-") for name in self.wanted)

    @property
    def is_whole(self) -> bool:
        """Every process of the plan works, and no other does."""
        working = {life.process.name for role in ("worker", "server") for life in self.working(role)}
        return self.count("worker") > 0 and working == self.wanted


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
