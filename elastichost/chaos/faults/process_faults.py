"""What can be done to a run: one class a fault, and the registry `FAULTS`.

A fault picks whom it hits among those that work at that moment, does it, and gives an `OpenFault`: what has to be seen
until the run has recovered. It is looked at again and again with the newest `Scene` and log of applied batches.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from elastichost.chaos.scene import Incarnation, Scene
from elastichost.chaos.tails import AppliedTail

__all__ = ["FAULTS", "Fault", "Kind", "OpenFault", "Recovered", "Target"]

Kind = Literal["worker", "server", "pair", "fork server", "supervisor", "pause", "hang", "scale", "machine"]


_WORDS: dict[Kind, str] = {
    "worker": "its successor trains",
    "server": "its successor serves",
    "pair": "both successors work",
    "fork server": "the libraries are imported again",
    "supervisor": "the resumed run trains",
    "pause": "it goes on",
    "hang": "found and replaced",
    "scale": "reached",
    "machine": "the others went on, and it has joined again",
}


class Target(Protocol):
    """The run, as faults may touch it."""

    scene: Scene
    applied: AppliedTail
    hang_timeout_s: float
    is_sync: bool  # batches are the crew's: no log says whose

    def now_s(self) -> float: ...

    def hit(self, pid: int, number: signal.Signals) -> bool:
        """Sends a signal to a process of this run; False when there is none of that pid."""
        ...

    def fork_server(self) -> int | None:
        """Its pid."""
        ...

    def kill_machine(self, draw: int) -> bool:
        """SIGKILL to the agent of another machine. False when there is none, while one is joining, and until the loss
        of the one before was seen."""
        ...

    def join(self, name: str) -> Callable[[], int | None]:
        """Has the machine of that name join the run; the answer is as that of `scale`."""
        ...

    def stop(self, pid: int, seconds: float) -> bool:
        """SIGSTOP, and SIGCONT after a time. False when there is no such process, or it is stopped already."""
        ...

    def scale(self, workers: int, servers: int) -> Callable[[], int | None]:
        """Starts `elastichost scale`; the answer gives its exit code, None while it is not done."""
        ...

    def resume(self, number: signal.Signals) -> bool:
        """Ends the supervisor with this signal, waits for its end and starts `resume`."""
        ...


@dataclass(frozen=True, slots=True)
class Recovered:
    """How long it took. `kind` says which figure it belongs to; superseded: the supervisor was replaced meanwhile,
    or the plan does not want this process any more;
    refused: the run would not do it now;
    missed: it went on by itself, although it stood still for longer than the hang timeout."""

    kind: Kind
    seconds: float
    words: str
    is_superseded: bool = False
    is_missed: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class OpenFault:
    """A fault under way. `struck_s`: when; `hit`: whom, in words; `kills`: processes killed on purpose."""

    fault: str
    hit: str
    kind: Kind
    struck_s: float
    kills: int
    generation: int
    incarnations: tuple[Incarnation, ...] = ()
    fork_servers_lost: int = 0
    hosts_lost: int = 0
    released_s: float = 0.0  # when a stopped process is let go
    command: Callable[[], int | None] | None = None  # what was started, and is done when it gives its exit code
    met: list[str] = field(default_factory=list)  # other faults that struck meanwhile

    def recovered(self, target: Target) -> Recovered | None:
        """None: not yet."""
        scene, applied = target.scene, target.applied
        if scene.generation > self.generation and self.kind != "supervisor":
            return Recovered(self.kind, target.now_s() - self.struck_s, "superseded by a new supervisor", True)
        if self.kind == "machine" and self.command is None:
            if len(scene.lost_hosts) == self.hosts_lost:
                return None
            self.command = target.join(scene.lost_hosts[self.hosts_lost])
        if self.command is not None:
            return self._commanded(target, self.command())
        if self.incarnations and len(scene.lost_hosts) > self.hosts_lost:
            return Recovered(self.kind, target.now_s() - self.struck_s, "superseded by the loss of a machine", True)
        moments = [self._served_again(incarnation, scene, applied, target.is_sync) for incarnation in self.incarnations]
        if self.kind == "fork server":
            is_back = scene.fork_servers_lost > self.fork_servers_lost and scene.fork_server_ready_s is not None
            moments = [scene.fork_server_ready_s if is_back else None]
        elif self.kind == "supervisor":
            is_back = scene.generation > self.generation and scene.is_whole and bool(applied.first_s)
            moments = [min(applied.first_s.values()) if is_back else None]
        if any(moment is None for moment in moments):
            late = [
                incarnation for incarnation, moment in zip(self.incarnations, moments, strict=False) if moment is None
            ]
            if late and not any(incarnation.is_there or scene.wants(incarnation) for incarnation in late):
                return Recovered(self.kind, target.now_s() - self.struck_s, "is not wanted any more", True)
            return None
        seconds = max(moment for moment in moments if moment is not None) - self.struck_s
        is_missed = self.kind == "hang" and any(
            incarnation.is_there and scene.wants(incarnation) for incarnation in self.incarnations
        )
        words = "was never found to hang, and goes on" if is_missed else _WORDS[self.kind]
        return Recovered(self.kind, seconds, words, is_missed=is_missed)

    def _commanded(self, target: Target, code: int | None) -> Recovered | None:
        if code is None:
            return None
        seconds = target.now_s() - self.struck_s
        words = _WORDS[self.kind] if code == 0 else f"refused or broken off (exit code {code})"
        return Recovered(self.kind, seconds, words, is_superseded=code != 0, is_refused=code != 0)

    def _served_again(
        self, incarnation: Incarnation, scene: Scene, applied: AppliedTail, is_sync: bool
    ) -> float | None:
        """When a worker's work went on, or a PS served again. A process that was only stopped may go on itself."""
        newest = scene.newest(incarnation.process.name)
        if self.kind in ("pause", "hang") and incarnation.is_there:
            last_s = applied.last_s.get((incarnation.process.index, incarnation.process.incarnation), 0.0)
            went_on_s = last_s if incarnation.process.role == "worker" and not is_sync else applied.newest_s
            return went_on_s if went_on_s > self.released_s else None
        if newest is None or newest.process == incarnation.process:
            return None
        if incarnation.process.role == "worker" and not is_sync:
            found = (applied.first_s.get((incarnation.process.index, later)) for later in _after(incarnation, newest))
            return next((moment for moment in found if moment is not None), None)
        if newest.ready_s is None or applied.newest_s <= newest.ready_s:
            return None
        return newest.ready_s


def _after(incarnation: Incarnation, newest: Incarnation) -> range:
    return range(incarnation.process.incarnation + 1, newest.process.incarnation + 1)


class Fault(Protocol):
    """One thing that can be done. `weight`: how often it is drawn, relative to the others."""

    @property
    def name(self) -> str: ...

    @property
    def meaning(self) -> str: ...

    @property
    def weight(self) -> float: ...

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        """Does it to one of those there are, chosen by `draw`; None when there is nobody it could hit now."""
        ...


def _choose(incarnations: tuple[Incarnation, ...], draw: int) -> Incarnation | None:
    return incarnations[draw % len(incarnations)] if incarnations else None


def _open(fault: Fault, target: Target, hit: str, kind: Kind, kills: int, *incarnations: Incarnation) -> OpenFault:
    scene = target.scene
    return OpenFault(
        fault.name,
        hit,
        kind,
        target.now_s(),
        kills,
        scene.generation,
        incarnations,
        fork_servers_lost=scene.fork_servers_lost,
        hosts_lost=len(scene.lost_hosts),
    )


@dataclass(frozen=True, slots=True)
class KillProcess:
    """SIGKILL to a worker or a PS."""

    role: Literal["worker", "server"]
    weight: float

    @property
    def name(self) -> str:
        return f"kill-{self.role}"

    @property
    def meaning(self) -> str:
        return f"kill -9 of a {'worker' if self.role == 'worker' else 'PS'}"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        incarnation = _choose(target.scene.working(self.role), draw)
        if incarnation is None:
            return None
        struck = _open(self, target, str(incarnation.process), self.role, 1, incarnation)
        return struck if target.hit(incarnation.pid, signal.SIGKILL) else None


@dataclass(frozen=True, slots=True)
class KillPair:
    """A worker and a PS in the same instant: neither can wait for the other to come back first."""

    weight: float
    name: str = "kill-pair"
    meaning: str = "kill -9 of a worker and a PS at once"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        worker = _choose(target.scene.working("worker"), draw)
        server = _choose(target.scene.working("server"), draw >> 8)
        if worker is None or server is None:
            return None
        struck = _open(self, target, f"{worker.process}, {server.process}", "pair", 2, server, worker)
        hits = [target.hit(incarnation.pid, signal.SIGKILL) for incarnation in (worker, server)]
        return struck if all(hits) else None


@dataclass(frozen=True, slots=True)
class KillForkServer:
    """The process that forks all others; while it is replaced nobody who dies can be started again."""

    weight: float
    name: str = "kill-fork-server"
    meaning: str = "kill -9 of the fork server"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        pid = target.fork_server()
        if pid is None or target.scene.fork_server_ready_s is None:
            return None
        struck = _open(self, target, "fork server", "fork server", 1)
        return struck if target.hit(pid, signal.SIGKILL) else None


@dataclass(frozen=True, slots=True)
class PauseProcess:
    """SIGSTOP, and SIGCONT after `times` the hang timeout: below it must go on as if nothing had been, beyond it must
    be replaced, and what it then sends must be refused."""

    role: Literal["worker", "server"]
    times: float
    weight: float

    @property
    def name(self) -> str:
        return f"stop-{self.role}-{self.times:g}x"

    @property
    def meaning(self) -> str:
        return f"SIGSTOP of a {'worker' if self.role == 'worker' else 'PS'} for {self.times:g} times the hang timeout"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        incarnation = _choose(target.scene.working(self.role), draw)
        if incarnation is None:
            return None
        kind: Kind = "pause" if self.times < 1 else "hang"
        struck = _open(self, target, str(incarnation.process), kind, 0, incarnation)
        struck.released_s = struck.struck_s + self.times * target.hang_timeout_s
        return struck if target.stop(incarnation.pid, self.times * target.hang_timeout_s) else None


@dataclass(frozen=True, slots=True)
class ReplaceSupervisor:
    """The supervisor is asked to stop (SIGINT) or killed, and the run resumed."""

    number: signal.Signals
    weight: float

    @property
    def name(self) -> str:
        return "interrupt-resume" if self.number == signal.SIGINT else "kill-supervisor"

    @property
    def meaning(self) -> str:
        how = "asked to stop" if self.number == signal.SIGINT else "killed by kill -9"
        return f"the supervisor is {how}, then `resume`"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        if not target.scene.is_whole:
            return None
        struck = _open(self, target, "supervisor", "supervisor", int(self.number == signal.SIGKILL))
        return struck if target.resume(self.number) else None


@dataclass(frozen=True, slots=True)
class KillMachine:
    """The agent of another machine, and with it all that is there: its rows come back from the newest checkpoint."""

    weight: float
    name: str = "kill-machine"
    meaning: str = "kill -9 of the agent of another machine, which joins again (with --hosts)"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        struck = _open(self, target, "machine", "machine", 1)
        return struck if target.scene.is_whole and target.kill_machine(draw) else None


@dataclass(frozen=True, slots=True)
class ScaleProcesses:
    """Another number of workers and PS while it trains: newcomers, hand-overs, departures, and deaths in between."""

    weight: float
    most_workers: int = 3
    most_servers: int = 3
    name: str = "scale"
    meaning: str = "`elastichost scale` to another number of workers and PS"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        scene = target.scene
        plans = [(w, s) for w in range(1, self.most_workers + 1) for s in range(1, self.most_servers + 1)]
        present = scene.count("worker"), scene.count("server")
        plans = [plan for plan in plans if plan != present]
        if not all(present):
            return None
        workers, servers = plans[draw % len(plans)]
        struck = _open(self, target, f"{workers} workers, {servers} PS", "scale", 0)
        struck.command = target.scale(workers, servers)
        return struck


FAULTS: tuple[Fault, ...] = (
    KillProcess("worker", 10),
    KillProcess("server", 6),
    KillPair(2),
    KillForkServer(0.5),
    ScaleProcesses(2),
    PauseProcess("worker", 0.5, 1),
    PauseProcess("worker", 2.0, 0.7),
    PauseProcess("server", 0.5, 0.5),
    PauseProcess("server", 2.0, 0.5),
    ReplaceSupervisor(signal.SIGINT, 0.5),
    ReplaceSupervisor(signal.SIGKILL, 0.5),
    KillMachine(1),
)
