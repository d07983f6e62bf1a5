"""The other machines of a run: their agents, asked at the same time, and what they make there.

Use as a context manager: on leaving, nothing is left on any of them.
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
from elastichost.host.cpu_features import present_cpu
from elastichost.plan import ProcessId
from elastichost.runs.cpu_check import needs_same_cpu
from elastichost.runs.directory import package_versions
from elastichost.supervisor.launch.host_paths import Place
from elastichost.supervisor.remote.messages import OpenedMsg, ProcessUsage, SourceFile, WelcomeMsg
from elastichost.supervisor.remote.preflight import Own, failures_of, interface_of, repair_of, supervisor_address
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from elastichost.supervisor.remote.transfers import TransferEnd
from elastichost.wire.security.keys import gate_at

__all__ = ["RESTORED", "LinkSpeed", "Machines", "file_problems"]

RESTORED = "restored"  # of a run's directory there: the checkpoint that it goes on from
PIECE_WAIT_S = 0.02
ANSWER_TIMEOUT_S, OPEN_TIMEOUT_S, ARENA_TIMEOUT_S = 60.0, 60.0, 60.0
LINK_TIMEOUT_S = 6.0


class LinkSpeed(msgspec.Struct, frozen=True):
    """Bytes a second from this machine to another one, and back; 0.0: it could not be measured."""

    there_bytes_per_s: float
    back_bytes_per_s: float

    @property
    def slowest_bytes_per_s(self) -> float:
        """Of the two directions, as far as they are known; 0.0: neither is."""
        return min((speed for speed in (self.there_bytes_per_s, self.back_bytes_per_s) if speed > 0), default=0.0)


class Machines:
    """launchers: by the number of the host in the run, from 1 on. They are started at once."""

    def __init__(self, hosts: HostsFile) -> None:
        self.hosts = hosts
        self._opened_with: tuple[str, tuple[SourceFile, ...], tuple[str, ...], tuple[str, ...]] | None = None
        self._control = tempfile.TemporaryDirectory(prefix="elastichost-ssh-")
        self.launchers: dict[int, RemoteLauncher] = {}
        self.links: dict[int, LinkSpeed] = {}  # by the number of the host; those that were measured
        self.files: dict[str, int] = {}  # of the data, by absolute path: bytes
        try:
            for host in hosts.hosts:
                self.call(host)
        except OSError as error:
            self.close()
            raise PreflightError(f"an agent cannot be started: {error}", hint="is there an ssh client?") from error

    def call(self, host: HostSection) -> tuple[int, RemoteLauncher]:
        """Starts the agent of one more: (its number, its launcher). Raises OSError."""
        number = 1 + max(self.launchers, default=0)
        path = Path(self._control.name) / str(number)
        self.launchers[number] = RemoteLauncher(number, host, self.hosts.timeout_s, path)
        return number, self.launchers[number]

    def dismiss(self, number: int) -> None:
        """That one is not wanted any more. Its number is not given again while others have higher ones."""
        self.launchers.pop(number).hang_up()

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- before the run -------------------------------------------------------------------------------------

    def check(self, job: JobSpec) -> None:
        """Returns when all have answered and can run the job. Raises PreflightError with every problem of each."""
        self._all(lambda one: one.welcome is not None, ANSWER_TIMEOUT_S)
        own, problems = Own(package_versions(), present_cpu(), needs_same_cpu(job)), list[str]()
        for one in self.launchers.values():
            if one.welcome is None:
                reason = one.lost or f"no answer within {ANSWER_TIMEOUT_S:g} s"
                problems.append(f"{one.host.shown}: {reason}\n    {repair_of(reason, one.host)}")
                continue
            problems += failures_of(one.host, one.welcome, own, one.welcomed_s)
        if problems:
            text = "\n  ".join(problems)
            raise PreflightError(
                f"not all hosts can be used:\n  {text}", hint="`elastichost doctor` checks the same hosts"
            )

    def measure_links(self) -> None:
        """How fast each is reached, and reaches this one. Raises PreflightError."""
        for number in self.launchers:
            self.measure_link(number)

    def measure_link(self, number: int) -> None:
        """Of one of them; takes a second. Raises PreflightError."""
        one = self.launchers[number]
        if one.host.transport == "ssh":  # else there is no link
            there = one.speed_to(interface_of(one.host, _welcome(one)), LINK_TIMEOUT_S)
            back = one.speed_from(self.address, LINK_TIMEOUT_S)
            self.links[number] = LinkSpeed(there, back)

    def check_files(self, names: Sequence[str]) -> None:
        """Those of them that are files here have to be there as well. Raises DataError with every one that is not, on
        any host."""
        self.files = {str(path.resolve()): path.stat().st_size for path in map(Path, names) if path.is_file()}
        problems = [
            problem
            for one in self.launchers.values()
            for problem in file_problems(one.host.shown, self.files, one.sizes_of(tuple(self.files), ANSWER_TIMEOUT_S))
        ]
        if problems:
            raise DataError(
                "the data is not the same on all hosts:\n  " + "\n  ".join(problems),
                hint="every host reads its own copy: put the same files at the same paths, or mount them there",
            )

    @property
    def address(self) -> str:
        """Where the others reach this machine."""
        return supervisor_address(self.hosts, tuple(self.launchers.values()))

    def cores(self) -> dict[int, tuple[int, ...]]:
        """That may be used of each, by the number of its host."""
        return {number: self.cores_of(number) for number in self.launchers}

    def cores_of(self, number: int) -> tuple[int, ...]:
        """That may be used of one. Raises PreflightError."""
        one = self.launchers[number]
        cores = _welcome(one).inventory.cores
        return cores[: one.host.cores or len(cores)]

    def memory_bytes(self) -> dict[int, int]:
        """Of each, by the number of its host."""
        known = {number: one.welcome for number, one in self.launchers.items()}
        return {number: welcome.inventory.memory_bytes for number, welcome in known.items() if welcome is not None}

    def silent_s(self, numbers: Iterable[int]) -> float:
        """Of those of them that has said nothing for longest. One that is joining imports, and is silent meanwhile."""
        return max((self.launchers[number].silent_s for number in numbers), default=0.0)

    def own_private_bytes(self, host: int) -> int:
        """Of the agent and its fork server; 0 for a host that is none of these."""
        launcher = self.launchers.get(host)
        return launcher.measured.own_private_bytes if launcher is not None else 0

    def usage(self, host: int, process: ProcessId) -> ProcessUsage | None:
        """As it was measured there last; None: not yet."""
        launcher = self.launchers.get(host)
        measured = launcher.measured.processes if launcher is not None else ()
        return next((one for one in measured if one.process == process), None)

    # --- of the run -----------------------------------------------------------------------------------------

    def open(
        self, run_id: str, files: tuple[SourceFile, ...], imports: tuple[str, ...], calls: tuple[str, ...]
    ) -> None:
        """Directories and fork servers; what it made is waited for by `places`."""
        self._opened_with = run_id, files, imports, calls
        for number in self.launchers:
            self.open_one(number)

    def open_one(self, number: int) -> None:
        """As the others of this run were."""
        assert self._opened_with is not None
        self.launchers[number].open(*self._opened_with)

    def places(self, control_address: str) -> dict[int, Place]:
        """By the number of the host. control_address: the supervisor's gate. Raises PreflightError."""
        self._all(lambda one: one.opened is not None, OPEN_TIMEOUT_S)
        return {number: self.place_of(number, control_address) for number in self.launchers}

    def place_of(self, number: int, control_address: str) -> Place:
        """Of one that was opened. Raises PreflightError."""
        one = self.launchers[number]
        opened = _opened(one)
        gate = gate_at(interface_of(one.host, _welcome(one)))
        paths = (opened.arena, opened.sockets, opened.run_dir)
        return Place(*paths, control_address, gate, is_elsewhere=True, cores=self.cores_of(number))

    def make_arenas(self, layout: ArenaLayout) -> None:
        """Who is lost meanwhile has none; that it is lost comes as an event. Raises ArenaFullError, ArenaError,
        PreflightError, naming the host."""
        for one in self.launchers.values():
            try:
                if not one.lost:
                    one.make_arena(layout, ARENA_TIMEOUT_S)
            except PreflightError:
                if not one.lost:
                    raise

    def send_checkpoint(self, checkpoint: Path, wanted: Mapping[int, Collection[str]]) -> None:
        """Returns when those files of it, by the number of the host, are there, below `RESTORED`, or the host is lost,
        which comes as an event. Raises CheckpointError."""
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
        """Waits for all of them, as long as for the slowest; who is lost or late is not waited for again."""
        deadline_s = time.monotonic() + timeout_s
        for one in self.launchers.values():
            with contextlib.suppress(PreflightError):
                one.wait(functools.partial(is_there, one), max(0.0, deadline_s - time.monotonic()), "to answer")

    def close(self) -> None:
        for one in self.launchers.values():
            one.close(grace_s=0.0)
        self._control.cleanup()


def _welcome(one: RemoteLauncher) -> WelcomeMsg:
    if one.welcome is None:
        raise PreflightError(f"host {one.host.shown} has not answered")
    return one.welcome


def _opened(one: RemoteLauncher) -> OpenedMsg:
    if one.opened is None:
        raise PreflightError(f"host {one.host.shown}: {one.lost or 'it made no directories in time'}")
    return one.opened


def file_problems(host: str, here: Mapping[str, int], there: Sequence[int]) -> list[str]:
    """here: bytes of each file; there: of the same, in order, -1 for one that cannot be read. Pure."""
    problems = []
    for (path, size), other in zip(here.items(), there, strict=True):
        if other < 0:
            problems.append(f"{host}: {path} is not there, or cannot be read")
        elif other != size:
            problems.append(f"{host}: {path} has {other:,} bytes there, {size:,} here")
    return problems
