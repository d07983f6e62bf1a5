"""The processes of all jobs: forked from one process that has imported torch, signalled, and seen to end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.dispatcher.isolation.process_meter import HostProcesses
from elastichost.dispatcher.job_process import JobArguments
from elastichost.errors import PreflightError
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import Exited, LaunchEvent, Started, StartFailed
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import Entries, SpawnRequest

__all__ = ["CHECK", "JOB", "Ended", "JobProcesses"]

JOB, CHECK = "job", "check"  # roles: a job's supervisor; what looks at a job before it may start
# What every supervisor needs besides what its workers and PS need; its fork server is this module by that name.
IMPORTS = (
    "elastichost.dispatcher.job_process",
    "elastichost.dispatcher.admission_probe",
    "elastichost.supervisor.job",
    "elastichost.supervisor.launch.fork_server",
    "elastichost.tuner.models.queueing",
    "scipy.optimize",
    "scipy.special",
)
CALLS = ("elastichost.runs.directory:package_versions",)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of a job. code: >= 0 an exit code, < 0 minus a signal; None: it could not be started. cause: in
    words. cpu_s: CPU seconds of it, and of all that ended below it."""

    role: str
    job: str
    incarnation: int
    code: int | None
    cause: str
    cpu_s: float = 0.0


class JobProcesses:
    """Use as a context manager: on leaving, nothing it started is left."""

    def __init__(self) -> None:
        entries = Entries()
        self._launcher = LocalLauncher((*entries.imports, *IMPORTS), (*entries.calls, *CALLS))
        self._names: dict[tuple[str, int], str] = {}  # role and index -> job
        self._numbers: dict[str, int] = {}
        self._asked: dict[tuple[str, str], int] = {}  # what is on its way, and the signal it gets then; 0: none
        self._below: dict[ProcessId, tuple[int, ...]] = {}  # what those had started that were sent SIGKILL
        self._orphans: set[int] = set()  # of killed ones; some are no more, or never were orphans
        self.pids: dict[str, int] = {}  # of the jobs' supervisors

    def __enter__(self) -> JobProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self._launcher.close()

    @property
    def server_pid(self) -> int:
        return self._launcher.server_pid

    def descriptors(self) -> tuple[int, ...]:
        return self._launcher.descriptors()

    def clean_when_lost(self, directory: Path) -> None:
        """Removed when this process is killed."""
        self._launcher.clean_when_lost((directory,))

    def wait_prepared(self, timeout_s: float) -> float:
        """Seconds that the imports took. Raises PreflightError."""
        prepared = self._launcher.wait_prepared(timeout_s)
        if prepared.error:
            raise PreflightError(
                f"the libraries of a worker cannot be imported:\n{prepared.error}", hint="run `elastichost doctor`"
            )
        return prepared.seconds

    @property
    def is_prepared(self) -> bool:
        return self._launcher.prepared is not None

    def examine(self, job: str, arguments: bytes, log: Path) -> None:
        self._spawn(CHECK, job, 1, "elastichost.dispatcher.admission_probe:main", arguments, log, ())

    def start(self, job: str, incarnation: int, arguments: JobArguments, log: Path) -> None:
        entry = "elastichost.dispatcher.job_process:main"
        self._spawn(JOB, job, incarnation, entry, msgspec.json.encode(arguments), log, arguments.lent.cores)

    def _spawn(
        self, role: str, job: str, incarnation: int, entry: str, arguments: bytes, log: Path, cores: tuple[int, ...]
    ) -> None:
        number = self._numbers.setdefault(job, len(self._numbers))
        self._names[role, number], self._asked[role, job] = job, 0
        process = ProcessId(role, number, incarnation)
        self._launcher.spawn(SpawnRequest(process, entry, arguments, log, cores=cores))

    def signal(self, job: str, number: int) -> None:
        """To a job's supervisor, if it lives; with SIGKILL the kernel takes its workers and PS as well. One that is on
        its way gets it when it is there."""
        self._signal(JOB, job, number)

    def end_examination(self, job: str) -> None:
        self._signal(CHECK, job, signal.SIGKILL)

    def _signal(self, role: str, job: str, number: int) -> None:
        if (role, job) in self._asked:
            self._asked[role, job] = number
        index = self._numbers.get(job)
        for process, pid in self._launcher.processes().items():
            if (process.role, process.index) == (role, index):
                if number == signal.SIGKILL and (tree := HostProcesses().tree(pid)) is not None:
                    self._below[process] = tree.pids
                self._launcher.kill(process, number)

    def jobs(self) -> set[str]:
        """Whose supervisor lives, or has been asked for."""
        there = {self._names[one.role, one.index] for one in self._launcher.processes() if one.role == JOB}
        return there | {job for role, job in self._asked if role == JOB}

    def events(self) -> list[Ended]:
        """What has ended since the last call; never waits."""
        found = []
        for event in self._launcher.events():
            ended = self._ended(event)
            if ended is not None:
                found.append(ended)
        self._orphans = {pid for pid in self._orphans if not _is_gone(pid)}
        return found

    def adopt(self, pids: Iterable[int]) -> None:
        """A supervisor has ended: what it left of these is this process' to be reaped."""
        self._orphans.update(pids)

    def _ended(self, event: LaunchEvent) -> Ended | None:
        match event:
            case Started(process, pid):
                job = self._names[process.role, process.index]
                if process.role == JOB:
                    self.pids[job] = pid
                if number := self._asked.pop((process.role, job), 0):
                    self._launcher.kill(process, number)
                return None
            case StartFailed(process, reason):
                job = self._names[process.role, process.index]
                self._asked.pop((process.role, job), None)
                return Ended(process.role, job, process.incarnation, None, reason)
            case Exited(process, _, code):
                self.adopt(self._below.pop(process, ()))
                job = self._names[process.role, process.index]
                if process.role == JOB:
                    self.pids.pop(job, None)
                return Ended(process.role, job, process.incarnation, code, event.cause, event.cpu_s)
            case _:
                return None  # the fork server was lost and is started again


def _is_gone(pid: int) -> bool:
    """It has ended, or was never this process' child."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def send(pids: Sequence[int], number: int) -> None:
    """Signals processes; those that have ended meanwhile are left out."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
