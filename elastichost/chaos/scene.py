"""The state of a run and its processes as seen from outside, folded from the events of its journal. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from elastichost.plan import ProcessId, worker_of_reader
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
    """One incarnation of a process. Times are seconds of the monotonic clock; None: not yet. is_lost: it ended
    unrequested, or could not be started."""

    process: ProcessId
    pid: int
    started_s: float
    ready_s: float | None = None
    ended_s: float | None = None
    is_lost: bool = False

    @property
    def is_there(self) -> bool:
        """It has not ended."""
        return self.ended_s is None

    @property
    def works(self) -> bool:
        """It became ready and has not ended."""
        return self.ready_s is not None and self.is_there


@dataclass(slots=True)
class Scene:
    """The state of a run. generation: number of supervisors that the run has had; the incarnations of an earlier
    supervisor are forgotten. run_ids: the run id of each supervisor."""

    generation: int = 0
    run_ids: list[str] = field(default_factory=list)
    arena: str = ""
    wanted: frozenset[str] = frozenset()  # names of the processes in the newest plan
    access: str = ""
    checkpoints: int = 0  # written so far, by all supervisors
    state: str = ""  # how the run ended; "" before its end
    fork_server_ready_s: float | None = None  # None: the fork server is not ready
    fork_servers_lost: int = 0
    lost_hosts: list[str] = field(default_factory=list)  # their names, in the order of the losses
    _incarnations: dict[str, list[Incarnation]] = field(default_factory=dict)

    def take(self, line: JournalLine) -> None:
        """Folds in the next line of the journal."""
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
        """The record of this incarnation; None: the present supervisor did not start it."""
        return next(
            (incarnation for incarnation in self._incarnations.get(process.name, ()) if incarnation.process == process),
            None,
        )

    def newest(self, name: str) -> Incarnation | None:
        """The newest incarnation of the process with this name; None: there is none."""
        incarnations = self._incarnations.get(name)
        return incarnations[-1] if incarnations else None

    def working(self, role: str) -> tuple[Incarnation, ...]:
        """The newest incarnations of a role that work, sorted by index. role: "worker", "server" or "reader"."""
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
        """Pids of all processes that the present supervisor has started."""
        return frozenset(
            incarnation.pid for incarnations in self._incarnations.values() for incarnation in incarnations
        )

    def wants(self, incarnation: Incarnation) -> bool:
        """The newest plan has a process of this name, or the worker of this reader."""
        process = incarnation.process
        if process.role == "reader":
            return f"worker-{worker_of_reader(process.index)}" in self.wanted
        return process.name in self.wanted

    def count(self, role: str) -> int:
        """The number of processes of this role in the newest plan."""
        return sum(name.startswith(f"{role}-") for name in self.wanted)

    @property
    def is_whole(self) -> bool:
        """Exactly the processes of the plan work, and there is a worker among them."""
        working = {incarnation.process.name for role in ("worker", "server") for incarnation in self.working(role)}
        return self.count("worker") > 0 and working == self.wanted
