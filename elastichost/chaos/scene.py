"""What is known of a run from outside: its processes, folded from the events of its journal. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastichost.plan import ProcessId
from elastichost.runs.events import (
    ArenaOpened,
    CheckpointWritten,
    ForkServerLost,
    ForkServerReady,
    HostLost,
    JournalLine,
    PlanChanged,
    ProcessEnded,
    ProcessLost,
    ProcessReady,
    ProcessStarted,
    ProcessStartFailed,
    RunEnded,
    RunStarted,
)

__all__ = ["Incarnation", "Scene"]


@dataclass(slots=True)
class Incarnation:
    """One incarnation of a process; times are of the monotonic clock, None: not yet."""

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
    """`generation` counts the supervisors of the run, from 1; incarnations of an earlier one are gone."""

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
    _incarnations: dict[str, list[Incarnation]] = field(default_factory=dict)

    def take(self, line: JournalLine) -> None:
        """Folds in the next line."""
        match line.event:
            case RunStarted(run_id=run_id):
                self.generation += 1
                self.run_ids.append(run_id)
                self._incarnations.clear()
                self.state, self.arena, self.fork_server_ready_s = "", "", None
            case RunEnded(state=state):
                self.state = state
            case CheckpointWritten():
                self.checkpoints += 1
            case ArenaOpened(path=path):
                self.arena = path
            case ForkServerReady():
                self.fork_server_ready_s = line.monotonic_s
            case ForkServerLost():
                self.fork_servers_lost += 1
                self.fork_server_ready_s = None
            case HostLost(name=name):
                self.lost_hosts.append(name)
            case PlanChanged(processes=processes, access=access):
                self.wanted, self.access = frozenset(processes), access
            case ProcessStarted(process=process, pid=pid):
                self._incarnations.setdefault(process.name, []).append(Incarnation(process, pid, line.monotonic_s))
            case ProcessReady(process=process) if (incarnation := self.incarnation(process)) is not None:
                incarnation.ready_s = line.monotonic_s
            case ProcessEnded(process=process) if (incarnation := self.incarnation(process)) is not None:
                incarnation.ended_s = line.monotonic_s
            case ProcessLost(process=process) | ProcessStartFailed(process=process):
                if (incarnation := self.incarnation(process)) is not None:
                    incarnation.ended_s, incarnation.is_lost = line.monotonic_s, True

    def incarnation(self, process: ProcessId) -> Incarnation | None:
        return next(
            (incarnation for incarnation in self._incarnations.get(process.name, ()) if incarnation.process == process),
            None,
        )

    def newest(self, name: str) -> Incarnation | None:
        incarnations = self._incarnations.get(name)
        return incarnations[-1] if incarnations else None

    def working(self, role: str) -> tuple[Incarnation, ...]:
        """The newest incarnations of a role that are ready and have not ended, by index."""
        newest = (
            incarnations[-1] for name, incarnations in sorted(self._incarnations.items()) if name.startswith(f"{role}-")
        )
        return tuple(
            sorted(
                (incarnation for incarnation in newest if incarnation.works),
                key=lambda incarnation: incarnation.process.index,
            )
        )

    @property
    def pids(self) -> frozenset[int]:
        """Of everyone that the present supervisor has started."""
        return frozenset(
            incarnation.pid for incarnations in self._incarnations.values() for incarnation in incarnations
        )

    def wants(self, incarnation: Incarnation) -> bool:
        """The newest plan has a process of this name."""
        return incarnation.process.name in self.wanted

    def count(self, role: str) -> int:
        """How many of that role the newest plan has."""
        return sum(name.startswith(f"{role}-") for name in self.wanted)

    @property
    def is_whole(self) -> bool:
        """Every process of the plan works, and no other does."""
        working = {incarnation.process.name for role in ("worker", "server") for incarnation in self.working(role)}
        return self.count("worker") > 0 and working == self.wanted
