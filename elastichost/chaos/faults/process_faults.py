"""The faults of processes: one class for each fault, and the registry `FAULTS`.

A fault selects its target among the processes that work at that time, and hits it. The resulting `OpenFault` tells when
the run has recovered; the driver asks it repeatedly, with the newest `Scene` and log of applied batches.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from elastichost.chaos.faults.source_process import SourceProcess
from elastichost.chaos.scene import Incarnation, Scene
from elastichost.chaos.tails import AppliedTail

__all__ = ["FAULTS", "Fault", "Kind", "OpenFault", "Recovered", "Target", "open_fault"]

Kind = Literal[
    "worker",
    "server",
    "reader",
    "pair",
    "fork server",
    "supervisor",
    "pause",
    "hang",
    "scale",
    "machine",
    "source",
    "memory holder",
]


_WORDS: dict[Kind, str] = {
    "worker": "its successor trains",
    "server": "its successor serves",
    "reader": "its successor reads",
    "pair": "both successors work",
    "fork server": "its successor has imported the libraries",
    "supervisor": "the resumed run trains",
    "pause": "it works again",
    "hang": "it was found hanging and replaced",
    "scale": "the run has the new size",
    "machine": "the run went on, and the host joined it again",
    "source": "training goes on",
    "memory holder": "another process keeps the memory",
}


class Target(Protocol):
    """What faults may read from a run and do to it. hang_timeout_s: `supervision.hang_timeout_s` of the job."""

    scene: Scene
    applied: AppliedTail
    hang_timeout_s: float
    source: SourceProcess | None  # stands before the training data; None: workers read files
    is_sync: bool  # sync mode: the log of applied batches does not name the worker of a batch

    def now_s(self) -> float: ...

    def hit(self, pid: int, number: signal.Signals) -> bool:
        """Sends a signal to a process of this run. False when the run has no process with this pid."""
        ...

    def fork_server(self) -> int | None:
        """The pid of the fork server; None: there is none."""
        ...

    def memory_holder(self) -> int | None:
        """The pid of the process that keeps the model in memory of a GPU; None: there is none."""
        ...

    def kill_machine(self, draw: int) -> bool:
        """Sends SIGKILL to the agent of another host. False, and nothing is done, when the run has no other host, while
        a host joins, and until the supervisor has noticed the previous loss."""
        ...

    def join(self, name: str) -> Callable[[], int | None]:
        """Requests that the host with this name joins the run again. The result is as that of `scale`."""
        ...

    def stop(self, pid: int, seconds: float) -> bool:
        """Sends SIGSTOP, and SIGCONT after `seconds`. False when there is no such process, or it is stopped already."""
        ...

    def scale(self, workers: int, servers: int) -> Callable[[], int | None]:
        """Starts `elastichost scale`. Returns a function that gives its exit code; None while it runs."""
        ...

    def resume(self, number: signal.Signals) -> bool:
        """Ends the supervisor with this signal, waits for its end and starts `elastichost resume`."""
        ...


@dataclass(frozen=True, slots=True)
class Recovered:
    """The end of a fault. kind: the figure that the time belongs to; seconds: time from the fault to the recovery;
    words: what ended the fault.

    is_superseded: the time does not count, because the supervisor was replaced or a host was lost in the meantime, the
    process is no longer in the plan, or a command failed; is_missed: the process was stopped for longer than the hang
    timeout, but was not replaced; is_refused: the run refused or aborted the command."""

    kind: Kind
    seconds: float
    words: str
    is_superseded: bool = False
    is_missed: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class OpenFault:
    """A fault from which the run has not recovered yet. fault: its name; hit: its targets, in words; struck_s: when it
    was injected; kills: number of processes that it killed; generation, fork_servers_lost, hosts_lost: of the scene at
    that time; incarnations: the targets."""

    fault: str
    hit: str
    kind: Kind
    struck_s: float
    kills: int
    generation: int
    incarnations: tuple[Incarnation, ...] = ()
    fork_servers_lost: int = 0
    hosts_lost: int = 0
    released_s: float = 0.0  # when a stopped process continues
    command: Callable[[], int | None] | None = None  # gives the exit code of the command that ends the fault
    met: list[str] = field(default_factory=list)  # names of other faults that were injected while this one was open

    def recovered(self, target: Target) -> Recovered | None:
        """The end of the fault; None: the run has not recovered yet. Starts the join of a host that was lost."""
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
            return Recovered(self.kind, target.now_s() - self.struck_s, "superseded by the loss of a host", True)
        moments = [self._served_again(incarnation, scene, applied, target.is_sync) for incarnation in self.incarnations]
        if self.kind == "fork server":
            is_back = scene.fork_servers_lost > self.fork_servers_lost and scene.fork_server_ready_s is not None
            moments = [scene.fork_server_ready_s if is_back else None]
        elif self.kind == "source":
            moments = [applied.newest_s if applied.newest_s > self.released_s else None]
        elif self.kind == "supervisor":
            is_back = scene.generation > self.generation and scene.is_whole and bool(applied.first_s)
            moments = [min(applied.first_s.values()) if is_back else None]
        if any(moment is None for moment in moments):
            late = [
                incarnation for incarnation, moment in zip(self.incarnations, moments, strict=False) if moment is None
            ]
            if late and not any(incarnation.is_there or scene.wants(incarnation) for incarnation in late):
                return Recovered(self.kind, target.now_s() - self.struck_s, "it is no longer in the plan", True)
            return None
        seconds = max(moment for moment in moments if moment is not None) - self.struck_s
        is_missed = self.kind == "hang" and any(
            incarnation.is_there and scene.wants(incarnation) for incarnation in self.incarnations
        )
        words = "was not found hanging, and works again" if is_missed else _WORDS[self.kind]
        return Recovered(self.kind, seconds, words, is_missed=is_missed)

    def _commanded(self, target: Target, code: int | None) -> Recovered | None:
        if code is None:
            return None
        seconds = target.now_s() - self.struck_s
        words = _WORDS[self.kind] if code == 0 else f"the command was refused or aborted (exit code {code})"
        return Recovered(self.kind, seconds, words, is_superseded=code != 0, is_refused=code != 0)

    def _served_again(
        self, incarnation: Incarnation, scene: Scene, applied: AppliedTail, is_sync: bool
    ) -> float | None:
        """When the work of a worker went on, or a PS served again; None: not yet. A stopped process can go on itself;
        otherwise its successor must work."""
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
    """A kind of fault. meaning: what it does, for the user; weight: how often it is drawn, relative to the others."""

    @property
    def name(self) -> str: ...

    @property
    def meaning(self) -> str: ...

    @property
    def weight(self) -> float: ...

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        """Injects the fault. draw: selects the target. None, and nothing is done, when it has no target now."""
        ...


def _choose(incarnations: tuple[Incarnation, ...], draw: int) -> Incarnation | None:
    return incarnations[draw % len(incarnations)] if incarnations else None


def open_fault(fault: Fault, target: Target, hit: str, kind: Kind, kills: int, *incarnations: Incarnation) -> OpenFault:
    """A fault that is injected now. Arguments: see `OpenFault`."""
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
    """Kills a worker, a PS or a reader. A job without readers has none to kill."""

    role: Literal["worker", "server", "reader"]
    weight: float

    @property
    def name(self) -> str:
        return f"kill-{self.role}"

    @property
    def meaning(self) -> str:
        return f"kill -9 of a {'PS' if self.role == 'server' else self.role}"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        incarnation = _choose(target.scene.working(self.role), draw)
        if incarnation is None:
            return None
        struck = open_fault(self, target, str(incarnation.process), self.role, 1, incarnation)
        return struck if target.hit(incarnation.pid, signal.SIGKILL) else None


@dataclass(frozen=True, slots=True)
class KillPair:
    """Kills a worker and a PS at the same time, so that neither can recover with the help of the other."""

    weight: float
    name: str = "kill-pair"
    meaning: str = "kill -9 of a worker and a PS at once"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        worker = _choose(target.scene.working("worker"), draw)
        server = _choose(target.scene.working("server"), draw >> 8)
        if worker is None or server is None:
            return None
        struck = open_fault(self, target, f"{worker.process}, {server.process}", "pair", 2, server, worker)
        hits = [incarnation for incarnation in (worker, server) if target.hit(incarnation.pid, signal.SIGKILL)]
        if len(hits) == 1:  # the other has just ended by itself
            kind: Kind = "worker" if hits == [worker] else "server"
            return replace(struck, hit=str(hits[0].process), kind=kind, kills=1, incarnations=(hits[0],))
        return struck if hits else None


@dataclass(frozen=True, slots=True)
class KillForkServer:
    """Kills the fork server. While it is replaced, no process can be started."""

    weight: float
    name: str = "kill-fork-server"
    meaning: str = "kill -9 of the fork server"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        pid = target.fork_server()
        if pid is None or target.scene.fork_server_ready_s is None:
            return None
        struck = open_fault(self, target, "fork server", "fork server", 1)
        return struck if target.hit(pid, signal.SIGKILL) else None


@dataclass(frozen=True, slots=True)
class PauseProcess:
    """Stops a process, and continues it after `times` the hang timeout. With times < 1 the process must go on; with
    times > 1 it must be replaced, and its later messages must be refused."""

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
        struck = open_fault(self, target, str(incarnation.process), kind, 0, incarnation)
        struck.released_s = struck.struck_s + self.times * target.hang_timeout_s
        return struck if target.stop(incarnation.pid, self.times * target.hang_timeout_s) else None


@dataclass(frozen=True, slots=True)
class ReplaceSupervisor:
    """Requests that the supervisor stops (SIGINT), or kills it; then resumes the run."""

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
        struck = open_fault(self, target, "supervisor", "supervisor", int(self.number == signal.SIGKILL))
        return struck if target.resume(self.number) else None


@dataclass(frozen=True, slots=True)
class KillMachine:
    """Kills the agent of another host, and so all processes there. Its rows are restored from the newest checkpoint."""

    weight: float
    name: str = "kill-machine"
    meaning: str = "kill -9 of the agent of another host, which joins again (with --hosts)"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        struck = open_fault(self, target, "machine", "machine", 1)
        return struck if target.scene.is_whole and target.kill_machine(draw) else None


@dataclass(frozen=True, slots=True)
class ScaleProcesses:
    """Scales the run to another number of workers and PS, so that processes start and end and buckets are handed
    over."""

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
        struck = open_fault(self, target, f"{workers} workers, {servers} PS", "scale", 0)
        struck.command = target.scale(workers, servers)
        return struck


FAULTS: tuple[Fault, ...] = (
    KillProcess("worker", 10),
    KillProcess("server", 6),
    KillProcess("reader", 6),
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
