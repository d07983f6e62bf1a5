"""The other machines of a run: their agents, which work at the same time, and what the agents make there.

Use `Machines` as a context manager: when the block is left, all agents are ended and remove what they made.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from elastichost.arena.layout import ArenaLayout
from elastichost.config.hosts import HostSection, HostsFile
from elastichost.config.job import JobSpec
from elastichost.errors import CheckpointError, DataError, PreflightError
from elastichost.plan import ProcessId
from elastichost.resources import OtherHost, memory_budget_bytes
from elastichost.supervisor.launch.host_paths import Place
from elastichost.supervisor.remote.messages import OpenedMsg, ProcessUsage, SourceFile, WelcomeMsg
from elastichost.supervisor.remote.preflight import failures_of, interface_of, own_of, repair_of, supervisor_address
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from elastichost.supervisor.remote.transfers import TransferEnd
from elastichost.wire.security.keys import gate_at

__all__ = ["RESTORED", "LinkSpeed", "Machines", "file_problems"]

RESTORED = "restored"  # in the run's directory there: the checkpoint that the run goes on from
PIECE_WAIT_S = 0.02
ANSWER_TIMEOUT_S, OPEN_TIMEOUT_S, ARENA_TIMEOUT_S = 60.0, 60.0, 60.0
LINK_TIMEOUT_S = 6.0


class LinkSpeed(msgspec.Struct, frozen=True):
    """The speed of a link, in bytes per second, from this machine to another one and back. 0.0: not measured."""

    there_bytes_per_s: float
    back_bytes_per_s: float

    @property
    def slowest_bytes_per_s(self) -> float:
        """The smaller of the measured speeds; 0.0 when neither direction was measured."""
        return min((speed for speed in (self.there_bytes_per_s, self.back_bytes_per_s) if speed > 0), default=0.0)


class Machines:
    """All other machines of a run. Their agents are started at once, when the object is made.

    launchers: number of the host in the run (from 1 on) -> its launcher. Raises PreflightError when an agent's process
    cannot be started.
    """

    def __init__(self, hosts: HostsFile) -> None:
        self.hosts = hosts
        self._opened_with: tuple[str, tuple[SourceFile, ...], tuple[str, ...], tuple[str, ...]] | None = None
        self._control = tempfile.TemporaryDirectory(prefix="elastichost-ssh-")
        self.launchers: dict[int, RemoteLauncher] = {}
        self.links: dict[int, LinkSpeed] = {}  # number of the host -> its link, where it was measured
        self.files: dict[str, int] = {}  # absolute path of each data file -> bytes
        try:
            for host in hosts.hosts:
                self.call(host)
        except OSError as error:
            self.close()
            raise PreflightError(f"cannot start an agent: {error}", hint="check that ssh is installed") from error

    def call(self, host: HostSection) -> tuple[int, RemoteLauncher]:
        """Starts the agent of one more machine. Returns (its number, its launcher). Raises OSError."""
        number = 1 + max(self.launchers, default=0)
        path = Path(self._control.name) / str(number)
        self.launchers[number] = RemoteLauncher(number, host, self.hosts.timeout_s, path)
        return number, self.launchers[number]

    def dismiss(self, number: int) -> None:
        """Ends the agent of a machine that does not join. Its number is used again if no other host has a higher
        one."""
        self.launchers.pop(number).hang_up()

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- before the run -------------------------------------------------------------------------------------

    def check(self, job: JobSpec) -> None:
        """Returns when all agents have answered and all machines can run the job. Raises PreflightError with every
        problem of every machine."""
        self._all(lambda one: one.welcome is not None, ANSWER_TIMEOUT_S)
        own, problems = own_of(job), list[str]()
        for one in self.launchers.values():
            if one.welcome is None:
                reason = one.lost or f"the agent has not answered within {ANSWER_TIMEOUT_S:g} s"
                problems.append(f"{one.host.shown}: {reason}\n    {repair_of(reason, one.host)}")
                continue
            problems += failures_of(one.host, one.welcome, own, one.welcomed_s)
        if problems:
            text = "\n  ".join(problems)
            raise PreflightError(
                f"not all hosts can be used:\n  {text}", hint="check the hosts with `elastichost doctor`"
            )

    def measure_links(self) -> None:
        """Measures the link to each machine over ssh, in both directions. Raises PreflightError."""
        for number in self.launchers:
            self.measure_link(number)

    def measure_link(self, number: int) -> None:
        """Measures the link to one machine over ssh, in both directions; takes about 1 s. Raises PreflightError."""
        one = self.launchers[number]
        if one.host.transport == "ssh":  # "local" has no link; the link to a node of Ray is not measured
            there = one.speed_to(interface_of(one.host, _welcome(one)), LINK_TIMEOUT_S)
            back = one.speed_from(self.address, LINK_TIMEOUT_S)
            self.links[number] = LinkSpeed(there, back)

    def check_files(self, names: Sequence[str]) -> None:
        """Checks that every machine has the data files. names: the data of the job; names that are no files on this
        machine are left out. Raises DataError with every file that is missing or has another size on a machine."""
        self.files = {str(path.resolve()): path.stat().st_size for path in map(Path, names) if path.is_file()}
        problems = [
            problem
            for one in self.launchers.values()
            for problem in file_problems(one.host.shown, self.files, one.sizes_of(tuple(self.files), ANSWER_TIMEOUT_S))
        ]
        if problems:
            raise DataError(
                "the data files are not the same on all hosts:\n  " + "\n  ".join(problems),
                hint="every host reads its own copy: put the same files at the same paths, or mount them there",
            )

    @property
    def address(self) -> str:
        """The address at which the other machines reach this one."""
        return supervisor_address(self.hosts, tuple(self.launchers.values()))

    def others(self, memory: str | int) -> dict[int, OtherHost]:
        """Number of the host -> what the run may use of it. memory: `resources.memory`. Raises PreflightError."""
        return {number: self._other(number, memory) for number in self.launchers}

    def _other(self, number: int, memory: str | int) -> OtherHost:
        one = self.launchers[number]
        welcome = _welcome(one)
        return OtherHost(
            name=one.host.shown,
            cores=self.cores_of(number),
            arena_root=welcome.arena_root,
            free_bytes=welcome.arena_free_bytes,
            budget_bytes=memory_budget_bytes(memory, welcome.inventory.memory_bytes),
        )

    def cores_of(self, number: int) -> tuple[int, ...]:
        """The cores of one host that the run may use. Raises PreflightError."""
        one = self.launchers[number]
        cores = _welcome(one).inventory.cores
        return cores[: one.host.cores or len(cores)]

    def memory_bytes(self) -> dict[int, int]:
        """Number of the host -> its memory in bytes, for the hosts that have answered."""
        known = {number: one.welcome for number, one in self.launchers.items()}
        return {number: welcome.inventory.memory_bytes for number, welcome in known.items() if welcome is not None}

    def silent_s(self, numbers: Iterable[int]) -> float:
        """The longest time in seconds for which one of these hosts has sent nothing. Leave out a host that is joining:
        its agent sends nothing while it imports."""
        return max((self.launchers[number].silent_s for number in numbers), default=0.0)

    def own_private_bytes(self, host: int) -> int:
        """Private memory in bytes of the agent and its fork server; 0 for a host without an agent."""
        launcher = self.launchers.get(host)
        return launcher.measured.own_private_bytes if launcher is not None else 0

    def usage(self, host: int, process: ProcessId) -> ProcessUsage | None:
        """The last measurement of a process on its host; None if there is none yet."""
        launcher = self.launchers.get(host)
        measured = launcher.measured.processes if launcher is not None else ()
        return next((one for one in measured if one.process == process), None)

    # --- of the run -----------------------------------------------------------------------------------------

    def open(
        self, run_id: str, files: tuple[SourceFile, ...], imports: tuple[str, ...], calls: tuple[str, ...]
    ) -> None:
        """Makes all agents create the directories of the run and start their fork servers. Does not wait; `places`
        does. Arguments as those of OpenMsg."""
        self._opened_with = run_id, files, imports, calls
        for number in self.launchers:
            self.open_one(number)

    def open_one(self, number: int) -> None:
        """As `open`, for one machine that joins. Uses the arguments of the call of `open`."""
        assert self._opened_with is not None
        self.launchers[number].open(*self._opened_with)

    def places(self, control_address: str) -> dict[int, Place]:
        """Waits until the directories are made. Returns number of the host -> directories and addresses there.
        control_address: of the supervisor's gate. Raises PreflightError."""
        self._all(lambda one: one.opened is not None, OPEN_TIMEOUT_S)
        return {number: self.place_of(number, control_address) for number in self.launchers}

    def place_of(self, number: int, control_address: str) -> Place:
        """The directories and addresses of a host that was opened. Raises PreflightError."""
        one = self.launchers[number]
        opened = _opened(one)
        gate = gate_at(interface_of(one.host, _welcome(one)))
        paths = (opened.arena, opened.sockets, opened.run_dir)
        return Place(*paths, control_address, gate, is_elsewhere=True, cores=self.cores_of(number))

    def make_arenas(self, layout: ArenaLayout) -> None:
        """Makes the arena of each host. A host that is lost meanwhile gets none; its loss comes as an event. Raises
        ArenaFullError, ArenaError and PreflightError with the name of the host."""
        for one in self.launchers.values():
            try:
                if not one.lost:
                    one.make_arena(layout, ARENA_TIMEOUT_S)
            except PreflightError:
                if not one.lost:
                    raise

    def send_checkpoint(self, checkpoint: Path, wanted: Mapping[int, Collection[str]]) -> None:
        """Copies files of a checkpoint to other hosts, into the directory RESTORED. wanted: number of the host -> names
        of the files. Returns when all have arrived. A host that is lost meanwhile is not waited for; its loss comes as
        an event. Raises CheckpointError."""
        answers: dict[int, list[TransferEnd]] = {number: [] for number in wanted}
        for number, names in wanted.items():
            for name in sorted(names):
                self.launchers[number].files.send(f"{RESTORED}/{name}", checkpoint / name, answers[number].append)
        while waited := [
            one
            for number, names in wanted.items()
            if len(answers[number]) < len(names) and not (one := self.launchers[number]).lost
        ]:
            for one in waited:
                one.wait_turn(PIECE_WAIT_S)
        if problems := [end.problem for ends in answers.values() for end in ends if end.problem]:
            raise CheckpointError(f"{checkpoint} cannot be sent to the other hosts: {problems[0]}")

    def _all(self, is_there: Callable[[RemoteLauncher], bool], timeout_s: float) -> None:
        """Waits until `is_there` holds for all launchers, at most `timeout_s` in all. A host that is lost or late is
        left out."""
        deadline_s = time.monotonic() + timeout_s
        for one in self.launchers.values():
            with contextlib.suppress(PreflightError):
                one.wait(functools.partial(is_there, one), max(0.0, deadline_s - time.monotonic()), "to answer")

    def close(self) -> None:
        for one in self.launchers.values():
            one.close()
        self._control.cleanup()


def _welcome(one: RemoteLauncher) -> WelcomeMsg:
    if one.welcome is None:
        raise PreflightError(f"host {one.host.shown}: its agent has not answered")
    return one.welcome


def _opened(one: RemoteLauncher) -> OpenedMsg:
    if one.opened is None:
        raise PreflightError(f"host {one.host.shown}: {one.lost or 'its agent has not made the directories in time'}")
    return one.opened


def file_problems(host: str, here: Mapping[str, int], there: Sequence[int]) -> list[str]:
    """A sentence for each file that a host does not have, or has with another size. Pure.

    here: path -> bytes on this machine. there: bytes of the same files on the host, in the same order; -1: the file
    cannot be read.
    """
    problems = []
    for (path, size), other in zip(here.items(), there, strict=True):
        if other < 0:
            problems.append(f"{host}: {path} does not exist there, or cannot be read")
        elif other != size:
            problems.append(f"{host}: {path} has {other:,} bytes there, but {size:,} on this machine")
    return problems
