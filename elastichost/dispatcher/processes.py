"""Starts, signals and reaps the processes of all jobs. They are forked from one process that has imported torch."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from elastichost.dispatcher.core.endings import Ended, start_hint
from elastichost.dispatcher.isolation.process_meter import HostProcesses
from elastichost.dispatcher.job_process import JobArguments
from elastichost.errors import PreflightError
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import Exited, LaunchEvent, LogNotOpened, Started, StartFailed
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import Entries, SpawnRequest

__all__ = ["CHECK", "JOB", "JobProcesses"]

JOB, CHECK = "job", "check"  # roles: a job's supervisor; the process that examines a job before its start
# Imports of supervisors and examinations, besides those of workers and PS. A supervisor forks its own fork server, so
# that module is imported here too.
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


class JobProcesses:
    """The processes of all jobs. Use it as a context manager: on exit, all processes are ended. launcher: starts them;
    None: a new fork server. pids: job -> pid of its supervisor."""

    def __init__(self, launcher: LocalLauncher | None = None) -> None:
        entries = Entries()
        self._launcher = launcher or LocalLauncher((*entries.imports, *IMPORTS), (*entries.calls, *CALLS))
        self._names: dict[tuple[str, int], str] = {}  # (role, index) -> job
        self._numbers: dict[str, int] = {}  # job -> index
        self._next_number = 0
        # (role, job) of a process that is being forked -> the signal to send when it is there; 0: none
        self._asked: dict[tuple[str, str], int] = {}
        self._problems: list[str] = []
        self._below: dict[ProcessId, tuple[int, ...]] = {}  # process that was sent SIGKILL -> pids of its tree
        self._orphans: set[int] = set()  # processes to reap; some may be reaped already, or not be children
        self.pids: dict[str, int] = {}

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
        """Has the fork server remove a directory if this process is killed."""
        self._launcher.clean_when_lost((directory,))

    def wait_prepared(self, timeout_s: float) -> float:
        """Waits until the libraries are imported. Returns the seconds that this took. Raises PreflightError when an
        import fails."""
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
        """Starts the examination of a job. arguments: an ExamineArguments, encoded as JSON. If that is not possible,
        `events` tells so; if its log cannot be opened, it starts without, and `problems` tells so."""
        self._spawn(CHECK, job, 1, "elastichost.dispatcher.admission_probe:main", arguments, log, ())

    def start(self, job: str, incarnation: int, arguments: JobArguments, log: Path) -> None:
        """Starts the supervisor of a job. If that is not possible, `events` tells so; if its log cannot be opened, it
        starts without, and `problems` tells so."""
        entry = "elastichost.dispatcher.job_process:main"
        self._spawn(JOB, job, incarnation, entry, msgspec.json.encode(arguments), log, arguments.lent.cores)

    def _spawn(
        self, role: str, job: str, incarnation: int, entry: str, arguments: bytes, log: Path, cores: tuple[int, ...]
    ) -> None:
        if job not in self._numbers:
            self._numbers[job] = self._next_number
            self._next_number += 1
        number = self._numbers[job]
        self._names[role, number], self._asked[role, job] = job, 0
        self._launcher.spawn(SpawnRequest(ProcessId(role, number, incarnation), entry, arguments, log, cores=cores))

    def signal(self, job: str, number: int) -> None:
        """Sends a signal to a job's supervisor, if it is alive. A supervisor that is being forked gets the signal when
        it is there. After SIGKILL the kernel kills the workers and PS too."""
        self._signal(JOB, job, number)

    def end_examination(self, job: str) -> None:
        """Kills the process that examines a job, if there is one."""
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
        """The jobs whose supervisor is alive or is being forked."""
        there = {self._names[one.role, one.index] for one in self._launcher.processes() if one.role == JOB}
        return there | {job for role, job in self._asked if role == JOB}

    def busy(self) -> set[str]:
        """The jobs that have a process, a supervisor or an examination, or for which one is being forked."""
        there = {self._names[one.role, one.index] for one in self._launcher.processes()}
        return there | {job for _, job in self._asked}

    def forget(self, jobs: Iterable[str]) -> None:
        """Forgets jobs that have ended. None of them may be `busy`."""
        for job in jobs:
            number = self._numbers.pop(job, None)
            if number is not None:
                for role in (JOB, CHECK):
                    self._names.pop((role, number), None)

    def problems(self) -> list[str]:
        """Sentences about processes that have started without a log since the last call."""
        problems, self._problems = self._problems, []
        return problems

    def events(self) -> list[Ended]:
        """The processes that have ended since the last call. Does not block. Also reaps adopted processes."""
        found: list[Ended] = []
        for event in self._launcher.events():
            ended = self._ended(event)
            if ended is not None:
                found.append(ended)
        self._orphans = {pid for pid in self._orphans if not _is_gone(pid)}
        return found

    def adopt(self, pids: Iterable[int]) -> None:
        """Remembers processes that a dead supervisor may have left. They are children of this process now, which must
        reap them."""
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
            case StartFailed(process, reason, number):
                job = self._names[process.role, process.index]
                self._asked.pop((process.role, job), None)
                return Ended(process.role, job, process.incarnation, None, reason, number=number)
            case LogNotOpened():
                self._problems.append(self._log_words(event))
                return None
            case Exited(process, _, code):
                self.adopt(self._below.pop(process, ()))
                job = self._names[process.role, process.index]
                if process.role == JOB:
                    self.pids.pop(job, None)
                return Ended(process.role, job, process.incarnation, code, event.cause, event.cpu_s)
            case _:
                return None  # the fork server was lost and is started again

    def _log_words(self, event: LogNotOpened) -> str:
        what = "supervisor" if event.process.role == JOB else "examination"
        job = self._names[event.process.role, event.process.index]
        hint = start_hint(event.number, str(Path(event.log).parent))
        told = f"the {what} of {job} starts without its log {event.log}, which could not be opened: {event.error}"
        return f"{told} -> {hint}" if hint else told


def _is_gone(pid: int) -> bool:
    """Reaps a process. Returns whether it has ended or is no child of this process."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def send(pids: Sequence[int], number: int) -> None:
    """Sends a signal to processes. Those that have ended, or that belong to another user, are skipped."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
