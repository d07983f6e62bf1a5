"""The processes of jobs, with a launcher that starts none."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import cast

from elastichost.dispatcher.core.endings import Ended
from elastichost.dispatcher.job_process import JobArguments
from elastichost.dispatcher.processes import CHECK, JOB, JobProcesses
from elastichost.plan import ProcessId
from elastichost.resources import HostInventory
from elastichost.supervisor.launch.events import Exited, LaunchEvent, LogNotOpened, Started, StartFailed
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import SpawnRequest


class Launching:
    """Stands for the launcher. While it `refuses`, no process can be forked."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.there: dict[ProcessId, int] = {}
        self.happened: list[LaunchEvent] = []

    def spawn(self, request: SpawnRequest) -> None:
        if self.refuses:
            self.happened.append(StartFailed(request.process, "cannot fork", errno.EAGAIN))
            return
        self.there[request.process] = 100 + len(self.there)
        self.happened.append(Started(request.process, self.there[request.process]))

    def ends(self, process: ProcessId) -> None:
        """A process ends with code 0."""
        self.happened.append(Exited(process, self.there.pop(process), 0))

    def processes(self) -> dict[ProcessId, int]:
        return self.there

    def events(self) -> list[LaunchEvent]:
        happened, self.happened = self.happened, []
        return happened


LOG = Path("/batch/a/supervisor.1.log")


def arguments() -> JobArguments:
    return JobArguments(
        job_file="/batch/a/job.toml",
        folder="/batch/a",
        working_directory="/home/user",
        run_dir="/home/user/runs/a",
        lent=HostInventory((0,), 1 << 30),
        size=None,
        resume=False,
        nice=0,
        log=str(LOG),
    )


def crew_of(launcher: Launching) -> JobProcesses:
    return JobProcesses(cast(LocalLauncher, launcher))


def test_a_job_without_a_log_runs_and_that_is_told() -> None:
    launcher = Launching()
    crew = crew_of(launcher)
    crew.start("a", 3, arguments(), LOG)
    crew.examine("b", b"{}", LOG.with_name("check.log"))
    supervisor, examination = launcher.there
    for process, log, number in ((supervisor, LOG, errno.ENOSPC), (examination, Path("/batch/b"), errno.EACCES)):
        launcher.happened.append(LogNotOpened(process, str(log), os.strerror(number), number))
    assert crew.events() == []
    assert (crew.jobs(), crew.busy()) == ({"a"}, {"a", "b"})
    assert crew.problems() == [
        f"the supervisor of a starts without its log {LOG}, which could not be opened: No space left on device -> the "
        "disk or the quota of /batch/a is full: free some space there",
        "the examination of b starts without its log /batch/b, which could not be opened: Permission denied",
    ]
    assert crew.problems() == []


def test_a_job_that_is_not_started_is_told_with_its_error_and_can_be_started_again() -> None:
    launcher = Launching(refuses=True)
    crew = crew_of(launcher)
    crew.start("a", 1, arguments(), LOG)
    crew.signal("a", 15)  # it is not there: nothing happens
    assert crew.events() == [Ended(JOB, "a", 1, None, "cannot fork", number=errno.EAGAIN)]
    assert (crew.events(), crew.jobs(), crew.busy()) == ([], set(), set())
    launcher.refuses = False
    crew.start("a", 2, arguments(), LOG)
    assert crew.events() == []
    assert (crew.jobs(), crew.pids) == ({"a"}, {"a": 100})
    launcher.ends(ProcessId(JOB, 0, 2))
    assert [(ended.incarnation, ended.code) for ended in crew.events()] == [(2, 0)]


def test_a_forgotten_job_leaves_nothing_and_its_number_is_not_used_again() -> None:
    launcher = Launching()
    crew = crew_of(launcher)
    for job in ("a", "b"):
        crew.start(job, 1, arguments(), LOG)
    assert crew.busy() == {"a", "b"}
    launcher.ends(ProcessId(JOB, 0, 1))
    assert [ended.job for ended in crew.events()] == ["a"]
    assert crew.busy() == {"b"}
    crew.forget(["a", "never seen"])
    crew.start("c", 1, arguments(), LOG)
    assert crew.events() == []
    assert {process.index for process in launcher.there} == {1, 2}
    assert crew._numbers.keys() == set(crew._names.values()) == {"b", "c"}
    launcher.ends(ProcessId(JOB, 1, 1))
    assert [ended.job for ended in crew.events()] == ["b"], "c does not have its number"


def test_a_job_whose_examination_is_still_being_killed_is_busy() -> None:
    launcher = Launching()
    crew = crew_of(launcher)
    crew.examine("a", b"{}", LOG)
    assert crew.events() == []
    assert (crew.jobs(), crew.busy()) == (set(), {"a"})
    launcher.ends(ProcessId(CHECK, 0, 1))
    assert [ended.role for ended in crew.events()] == [CHECK]
    assert crew.busy() == set()
