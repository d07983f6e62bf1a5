"""The other machines of a run: their agents, asked at the same time, and what they make there.

Use as a context manager: on leaving, nothing is left on any of them.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from elastichost.arena.layout import ArenaLayout
from elastichost.config_hosts import HostsFile
from elastichost.errors import CheckpointError, PreflightError
from elastichost.plan import ProcessId
from elastichost.supervisor.hosts_check import findings_of, interface_of, repair_of, supervisor_address
from elastichost.supervisor.launch.agent_messages import Opened, ProcessUsage, SourceFile, Welcome
from elastichost.supervisor.launch.remote import RemoteLauncher
from elastichost.supervisor.place import Place
from elastichost.supervisor.rundir import package_versions
from elastichost.wire.keys import gate_at

__all__ = ["RESTORED", "Machines"]

RESTORED = "restored"  # of a run's directory there: the checkpoint that it goes on from
PIECE_WAIT_S = 0.02
ANSWER_TIMEOUT_S, OPEN_TIMEOUT_S, ARENA_TIMEOUT_S = 60.0, 60.0, 60.0


class Machines:
    """launchers: by the number of the host in the run, from 1 on. They are started at once."""

    def __init__(self, hosts: HostsFile) -> None:
        self._hosts = hosts
        self._control = tempfile.TemporaryDirectory(prefix="elastichost-ssh-")
        self.launchers: dict[int, RemoteLauncher] = {}
        try:
            for number, host in enumerate(hosts.hosts, start=1):
                path = Path(self._control.name) / str(number)
                self.launchers[number] = RemoteLauncher(number, host, hosts.timeout_s, path)
        except OSError as error:
            self.close()
            raise PreflightError(f"ssh cannot be started: {error}", hint="run `elastichost doctor --hosts`") from error

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- before the run -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Returns when all have answered and can run the job. Raises PreflightError with every problem of each."""
        self._all(lambda one: one.welcome is not None, ANSWER_TIMEOUT_S)
        own, problems = package_versions(), list[str]()
        for one in self.launchers.values():
            if one.welcome is None:
                reason = one.lost or f"no answer within {ANSWER_TIMEOUT_S:g} s"
                problems.append(f"{one.host.shown}: {reason}\n    {repair_of(reason, one.host)}")
                continue
            findings = findings_of(one.host, one.welcome, own, one.welcomed_s)
            failed = (finding for finding in findings if finding.verdict == "failed")
            problems += [f"{finding.host}: {finding.name}: {finding.found}\n    {finding.repair}" for finding in failed]
        if problems:
            text = "\n  ".join(problems)
            raise PreflightError(
                f"not all hosts can be used:\n  {text}", hint="`elastichost doctor --hosts` checks all"
            )

    @property
    def address(self) -> str:
        """Where the others reach this machine."""
        return supervisor_address(self._hosts, tuple(self.launchers.values()))

    def cores(self) -> dict[int, tuple[int, ...]]:
        """That may be used of each, by the number of its host."""
        found: dict[int, tuple[int, ...]] = {}
        for number, one in self.launchers.items():
            cores = _welcome(one).inventory.cores
            found[number] = cores[: one.host.cores or len(cores)]
        return found

    def memory_bytes(self) -> dict[int, int]:
        """Of each, by the number of its host."""
        return {number: _welcome(one).inventory.memory_bytes for number, one in self.launchers.items()}

    @property
    def silent_s(self) -> float:
        """Of the one that has said nothing for longest."""
        return max((one.silent_s for one in self.launchers.values()), default=0.0)

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
        for one in self.launchers.values():
            one.open(run_id, files, imports, calls)

    def places(self, control_address: str) -> dict[int, Place]:
        """By the number of the host. control_address: the supervisor's gate. Raises PreflightError."""
        self._all(lambda one: one.opened is not None, OPEN_TIMEOUT_S)
        cores, found = self.cores(), dict[int, Place]()
        for number, one in self.launchers.items():
            opened = _opened(one)
            gate = gate_at(interface_of(one.host, _welcome(one)))
            paths = (opened.arena, opened.sockets, opened.run_dir)
            found[number] = Place(*paths, control_address, gate, is_elsewhere=True, cores=cores[number])
        return found

    def make_arenas(self, layout: ArenaLayout) -> None:
        """Raises ArenaFullError, ArenaError, PreflightError, naming the host."""
        for one in self.launchers.values():
            one.make_arena(layout, ARENA_TIMEOUT_S)

    def send_checkpoint(self, checkpoint: Path, wanted: Mapping[int, Collection[str]]) -> None:
        """Returns when those files of it, by the number of the host, are there, below `RESTORED`. Raises
        CheckpointError, PreflightError."""
        answers: list[str] = []
        total = 0
        for number, names in wanted.items():
            for name in sorted(names):
                total += 1
                self.launchers[number].files.send(f"{RESTORED}/{name}", checkpoint / name, answers.append)
        while len(answers) < total:
            for one in self.launchers.values():
                one.wait_turn(PIECE_WAIT_S)
        if problems := [answer for answer in answers if answer]:
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


def _welcome(one: RemoteLauncher) -> Welcome:
    if one.welcome is None:
        raise PreflightError(f"host {one.host.shown} has not answered")
    return one.welcome


def _opened(one: RemoteLauncher) -> Opened:
    if one.opened is None:
        raise PreflightError(f"host {one.host.shown}: {one.lost or 'it made no directories in time'}")
    return one.opened
