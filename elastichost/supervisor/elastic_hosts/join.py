"""Machines join a run while it trains. The states of one machine; nothing here waits.

    called -> greeted -> opened -> joined
       \\---------\\---------\\----> refused

called: its agent is started. greeted: the agent has answered, the machine can run the job, and the agent was asked to
make its directories and to look up the data files. opened: the directories and the fork server are ready, the data
files are there, and the agent was asked for an arena. joined: the arena is made, so processes can be started there.
refused: there was a problem, or the machine took longer than JOIN_TIMEOUT_S.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from elastichost.arena.arena import Arena
from elastichost.arena.host import create_directory, reclaim, replica_directory
from elastichost.arena.layout import ArenaLayout
from elastichost.arena.owner import owner_of
from elastichost.atomic_write import write_atomically
from elastichost.config.hosts import MOST_HOSTS, HostSection, HostsFile
from elastichost.config.job import JobSpec
from elastichost.errors import ArenaError, IllegalTransitionError, PreflightError
from elastichost.resources import memory_budget_bytes
from elastichost.runs.events import HostJoined, HostsFileNotWritten
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.elastic_hosts.arena_replica import ArenaReplica
from elastichost.supervisor.memory.gauge import MemoryGauge
from elastichost.supervisor.remote.hosts import Machines, file_problems
from elastichost.supervisor.remote.messages import ArenaRefusedMsg
from elastichost.supervisor.remote.preflight import failures_of, own_of, repair_of
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from elastichost.wire.commands import RefusedMsg, ScaleMsg

__all__ = ["TRANSITIONS", "HostJoin", "HostObservation", "JoinState", "join_refusal", "keep_hosts", "next_state"]

JOIN_TIMEOUT_S = 120.0  # includes the import of libraries there


class JoinState(StrEnum):
    """The state of a machine that joins; see the module."""

    CALLED = "called"
    GREETED = "greeted"
    OPENED = "opened"
    JOINED = "joined"
    REFUSED = "refused"


TRANSITIONS: dict[tuple[JoinState, str], JoinState] = {
    (JoinState.CALLED, "welcome"): JoinState.GREETED,
    (JoinState.GREETED, "prepared"): JoinState.OPENED,
    (JoinState.OPENED, "arena made"): JoinState.JOINED,
    (JoinState.CALLED, "trouble"): JoinState.REFUSED,
    (JoinState.GREETED, "trouble"): JoinState.REFUSED,
    (JoinState.OPENED, "trouble"): JoinState.REFUSED,
    (JoinState.JOINED, "trouble"): JoinState.REFUSED,  # it was lost before the others had joined
}


class HostObservation(msgspec.Struct, frozen=True):
    """What is known of a machine that joins. trouble: why it cannot join, "" when nothing prevents it. waited_s:
    seconds since its agent was started."""

    has_answered: bool = False
    is_prepared: bool = False
    has_arena: bool = False
    trouble: str = ""
    waited_s: float = 0.0


def next_state(state: JoinState, seen: HostObservation) -> tuple[JoinState, str]:
    """Returns (the next state, why the machine is refused). The state stays when nothing new was observed. Pure."""
    trouble = seen.trouble
    if not trouble and state != JoinState.JOINED and seen.waited_s > JOIN_TIMEOUT_S:
        trouble = f"the machine has not joined within {JOIN_TIMEOUT_S:g} s; it is only {state.value}"
    if trouble and state != JoinState.REFUSED:
        return moved(state, "trouble"), trouble
    match state:
        case JoinState.CALLED if seen.has_answered:
            return moved(state, "welcome"), ""
        case JoinState.GREETED if seen.is_prepared:
            return moved(state, "prepared"), ""
        case JoinState.OPENED if seen.has_arena:
            return moved(state, "arena made"), ""
        case _:
            return state, ""


def moved(state: JoinState, event: str) -> JoinState:
    """The state after an event. Raises IllegalTransitionError."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError("a machine that joins", state.value, event) from None


@dataclass(slots=True)
class _JoiningHost:
    number: int
    launcher: RemoteLauncher
    called_s: float
    state: JoinState = JoinState.CALLED
    reason: str = ""


class HostJoin:
    """The machines of one command, which join together or not at all.

    hosts: the machines that the command names. size: the size of the run with them, as the command asks for it. gain:
    called with the memory gauge of each new host and its budget in bytes. Raises OSError when an agent's process cannot
    be started; the agents that were started before it are ended.
    """

    def __init__(
        self,
        run: RunContext,
        machines: Machines,
        layout: ArenaLayout,
        hosts: HostsFile,
        size: ScaleMsg,
        gain: Callable[[MemoryGauge, int], None],
    ) -> None:
        self._run, self._machines, self._layout, self._gain = run, machines, layout, gain
        self.size = size
        self._guests: list[_JoiningHost] = []
        try:
            for host in hosts.hosts:
                self._call(host)
        except OSError:
            self.dismiss()
            raise

    def _call(self, host: HostSection) -> None:
        number, launcher = self._machines.call(host)
        self._run.hear(number, launcher)
        self._guests.append(_JoiningHost(number, launcher, self._run.now_s()))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of these hosts in the run."""
        return tuple(guest.number for guest in self._guests)

    @property
    def cores(self) -> int:
        """Number of cores of all these hosts. Raises PreflightError before all have answered."""
        return sum(len(self._machines.cores_of(guest.number)) for guest in self._guests)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why machines cannot join; empty while all may still join."""
        return tuple(guest.reason for guest in self._guests if guest.reason)

    def turn(self, now_s: float) -> bool:
        """Advances each machine. Returns True when all have joined. If there are `reasons` afterwards, not all can
        join: call `dismiss`."""
        for guest in self._guests:
            before = guest.state
            guest.state, guest.reason = next_state(guest.state, self._seen(guest, now_s))
            if guest.state != before:
                self._entered(guest)
        return bool(self._guests) and all(guest.state == JoinState.JOINED for guest in self._guests)

    def _seen(self, guest: _JoiningHost, now_s: float) -> HostObservation:
        launcher = guest.launcher
        sizes = launcher.files_answer if guest.state == JoinState.GREETED else None
        wrong = file_problems(launcher.host.shown, self._machines.files, sizes) if sizes is not None else ()
        return HostObservation(
            has_answered=launcher.welcome is not None,
            is_prepared=launcher.opened is not None and launcher.prepared is not None and sizes is not None,
            has_arena=guest.state == JoinState.OPENED and launcher.arena_answer is not None,
            trouble=_trouble(launcher, self._run.job, is_new=guest.state == JoinState.CALLED) or "\n  ".join(wrong),
            waited_s=now_s - guest.called_s,
        )

    def _entered(self, guest: _JoiningHost) -> None:
        match guest.state:
            case JoinState.GREETED:
                self._machines.open_one(guest.number)
                guest.launcher.ask_files(tuple(self._machines.files))
            case JoinState.OPENED:
                guest.launcher.ask_arena(self._layout)
            case _:
                pass

    def admit(self) -> None:
        """Makes the machines hosts of the run. Call it when all have joined. Raises ArenaError (ArenaFullError if there
        is no room on this machine for the replica of an arena) and PreflightError, with the run unchanged."""
        run = self._run
        places = [self._machines.place_of(guest.number, run.control.outer_address) for guest in self._guests]
        replicas = self._make_replicas()
        for guest, place, arena in zip(self._guests, places, replicas, strict=True):
            number, launcher = guest.number, guest.launcher
            run.other_arenas[number] = arena.directory
            budget_bytes = memory_budget_bytes(run.job.resources.memory, self._machines.memory_bytes()[number])
            self._gain(MemoryGauge(number, arena, ArenaReplica(arena, launcher)), budget_bytes)
            run.elsewhere[number] = place
            with contextlib.suppress(PreflightError):  # a host that is lost meanwhile is handled by its event
                self._machines.measure_link(number)
            run.note(HostJoined(number, launcher.host.shown))
        keep_hosts(run)

    def _make_replicas(self) -> list[Arena]:
        """The replicas of the arenas of all these machines, in order. If one cannot be made, none stays. Raises
        ArenaError."""
        run = self._run
        with contextlib.ExitStack() as made:
            replicas: list[Arena] = []
            for guest in self._guests:
                directory = replica_directory(run.run_id, guest.number)
                create_directory(directory, owner_of(run.supervisor_pid, run.directory.path))
                made.callback(_remove, directory)
                Arena.create(directory, self._layout, whole=False).close()
                replicas.append(made.enter_context(Arena.attach(directory)))
            made.pop_all()  # all are made: they stay, and stay mapped
        return replicas

    def dismiss(self) -> None:
        """Ends the agents of these machines: they do not join."""
        for guest in self._guests:
            self._run.detach_host(guest.number)
            self._machines.dismiss(guest.number)
        self._guests = []


def join_refusal(run: RunContext, hosts: HostsFile, *, is_joining: bool) -> RefusedMsg | None:
    """Why these machines cannot join the run now; None when they can. is_joining: other machines are joining."""
    if run.machines is None:
        return RefusedMsg(
            "no machine can join this run, because it was started without a hosts file",
            "start the run with --on ray, or with --hosts FILE; the file may contain hosts = []",
        )
    if is_joining:
        return RefusedMsg("other machines are joining the run now", "try again when they have joined")
    used = {run.machines.launchers[host].host.shown for host in run.elsewhere}
    if again := sorted(used & {host.shown for host in hosts.hosts}):
        return RefusedMsg(f"already in the run: {', '.join(again)}", "", True)
    if not hosts.hosts:
        return RefusedMsg("the command names no machine", "name one: scale RUN --host user@name", True)
    if len(used) + len(hosts.hosts) > MOST_HOSTS:
        return RefusedMsg(f"a run can have {MOST_HOSTS} other machines at most, and has {len(used)}", "", True)
    return None


def _remove(replica: Path) -> None:
    """Removes a replica that is not used. One that cannot be removed is left for `elastichost clean`: the machines are
    refused for the reason that is told already."""
    with contextlib.suppress(ArenaError):
        reclaim(replica)


def keep_hosts(run: RunContext) -> None:
    """Writes the machines that the run uses to its directory, so that a resumed run uses them again."""
    if run.machines is not None:
        used: Sequence[HostSection] = [run.machines.launchers[host].host for host in sorted(run.elsewhere)]
        facts = run.machines.hosts.model_copy(update={"hosts": tuple(used)})
        try:
            write_atomically(run.directory.hosts, facts.model_dump_json(indent=1).encode())
        except OSError as error:
            run.note(HostsFileNotWritten(str(run.directory.hosts), str(error)))


def _trouble(launcher: RemoteLauncher, job: JobSpec, *, is_new: bool) -> str:
    """Why the machine cannot join; "" when nothing prevents it. is_new: its welcome was not checked yet."""
    shown = launcher.host.shown
    if launcher.lost:
        return f"{shown}: {launcher.lost}\n    {repair_of(launcher.lost, launcher.host)}"
    if launcher.prepared is not None and launcher.prepared.error:
        return f"{shown}: the libraries of a worker cannot be imported on this host:\n{launcher.prepared.error}"
    if isinstance(launcher.arena_answer, ArenaRefusedMsg):
        return f"{shown}: {launcher.arena_answer.message}"
    if launcher.welcome is None or not is_new:
        return ""
    own = own_of(job)
    return "\n  ".join(failures_of(launcher.host, launcher.welcome, own, launcher.welcomed_s))
