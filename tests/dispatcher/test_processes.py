"""The processes of jobs, with a launcher that cannot request them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import cast

import pytest

from elastichost.dispatcher.job_process import JobArguments
from elastichost.dispatcher.processes import CHECK, JOB, Ended, JobProcesses
from elastichost.plan import ProcessId
from elastichost.resources import HostInventory
from elastichost.supervisor.launch.events import Exited, LaunchEvent, Started
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import SpawnRequest


class Launching:
    """Stands for the launcher. While `number` is not 0, the log of a process cannot be opened, for that reason."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.there: dict[ProcessId, int] = {}
        self.happened: list[LaunchEvent] = []

    def spawn(self, request: SpawnRequest) -> None:
        if self.number:
            raise OSError(self.number, os.strerror(self.number), str(request.log))
        self.there[request.process] = 100 + len(self.there)
        self.happened.append(Started(request.process, self.there[request.process]))

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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOENT, errno.EMFILE])
def test_a_job_whose_log_cannot_be_opened_is_told_as_not_started(number: int) -> None:
    launcher = Launching(number)
    crew = JobProcesses(cast(LocalLauncher, launcher))
    crew.start("a", 3, arguments(), LOG)
    crew.examine("b", b"{}", LOG.with_name("check.log"))
    assert crew.jobs() == set()
    crew.signal("a", 15)  # it is not there: nothing happens
    assert crew.events() == [
        Ended(JOB, "a", 3, None, f"{LOG}: {os.strerror(number)}"),
        Ended(CHECK, "b", 1, None, f"/batch/a/check.log: {os.strerror(number)}"),
    ]
    assert crew.events() == []


def test_it_is_started_when_its_log_can_be_opened_again() -> None:
    launcher = Launching(errno.ENOSPC)
    crew = JobProcesses(cast(LocalLauncher, launcher))
    crew.start("a", 1, arguments(), LOG)
    assert [ended.code for ended in crew.events()] == [None]
    launcher.number = 0
    crew.start("a", 2, arguments(), LOG)
    assert crew.events() == []
    assert (crew.jobs(), crew.pids) == ({"a"}, {"a": 100})
    launcher.happened.append(Exited(ProcessId(JOB, 0, 2), 100, 0))
    assert [(ended.incarnation, ended.code) for ended in crew.events()] == [(2, 0)]
