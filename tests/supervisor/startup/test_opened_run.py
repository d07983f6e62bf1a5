"""A run that is resumed shows a state of its own from the moment that its directory is locked, and not its earlier end.
A run that does not begin shows that end again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elastichost.arena.host import socket_directory
from elastichost.config.job import JobSpec, load_job
from elastichost.errors import CheckpointError, DataError, ElastichostError, SourceGoneError
from elastichost.metrics import RunStatus, read_status
from elastichost.run_files import JOURNAL_FILE, RESULT_FILE, STATUS_FILE
from elastichost.runs.directory import RunDirectory
from elastichost.runs.liveness import is_locked, is_running
from elastichost.supervisor.startup import opened_run
from elastichost.supervisor.startup.opened_run import OpenedRun, open_again
from elastichost.supervisor.startup.preflight import preflight

JOB = """
[job]
name = "shop"
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[data.synthetic]
rows = 1000
[train]
epochs = 3
"""
RESULT = b'{"status": "stopped"}'
DEAD_PID = 4_000_000


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    (tmp_path / "job.toml").write_text(JOB)
    return load_job(tmp_path / "job.toml", environ={})


@pytest.fixture(params=["stopped", "training"])
def run(request: pytest.FixtureRequest, tmp_path: Path, job: JobSpec) -> Path:
    """The directory of a run that was stopped, or whose supervisor was killed."""
    directory = RunDirectory.open(tmp_path / "run", job, resume=False)
    directory.write_facts(job, is_one_of_many=True)
    directory.close()
    status = RunStatus(
        run_dir=str(directory.path),
        job="shop",
        state=request.param,
        supervisor_pid=DEAD_PID,
        commands="ipc:///gone",
        samples_planned=1000,
        samples_trained=250,
    )
    (directory.path / STATUS_FILE).write_bytes(msgspec.json.encode(status))
    (directory.path / JOURNAL_FILE).touch()
    if request.param == "stopped":
        (directory.path / RESULT_FILE).write_bytes(RESULT)
    return directory.path


def files(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in (STATUS_FILE, RESULT_FILE) if (run / name).exists()}


def opened(job: JobSpec, run: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[], None]) -> OpenedRun:
    """Opens the run again; `check` is called during the preflight. The checkpoint is not looked for."""

    def checked(*arguments: Any) -> object:
        check()
        return preflight(*arguments)

    monkeypatch.setattr(opened_run, "preflight", checked)
    monkeypatch.setattr(opened_run, "look_for_checkpoint", lambda source, claim: None)
    return open_again(job, run, None, (), None, None)


def test_a_resumed_run_is_starting_while_it_is_checked(
    job: JobSpec, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[RunStatus, bool, bool]] = []
    found = opened(
        job, run, monkeypatch, lambda: seen.append((read_status(run), is_running(run), (run / RESULT_FILE).exists()))
    )
    ((status, runs, has_result),) = seen
    assert runs, "it was not taken for running while its status told the end before"
    assert not has_result, "the state of a run is read from its result first"
    assert (status.state, status.supervisor_pid, status.job, status.epochs) == ("starting", os.getpid(), "shop", 3)
    assert status.run_dir == str(run)
    assert status.commands == found.commands_address == f"ipc://{socket_directory(found.run_id)}/commands"
    assert (status.samples_planned, status.processes) == (0, ()), "as in the first report of the supervisor"
    found.begin()
    found.close()
    assert read_status(run).state == "starting", "the supervisor reports from here on"
    assert not is_running(run)


@pytest.mark.parametrize("error", [DataError("rows are bad"), SourceGoneError("gone")])
def test_a_resume_that_is_refused_leaves_the_status_and_the_result_as_they_were(
    job: JobSpec, run: Path, monkeypatch: pytest.MonkeyPatch, error: ElastichostError
) -> None:
    before, seen = files(run), []

    def refuse() -> None:
        seen.append(read_status(run).state)
        raise error

    with pytest.raises(ElastichostError, match=error.message):
        opened(job, run, monkeypatch, refuse)
    assert seen == ["starting"]
    assert files(run) == before
    assert not is_locked(run)


def test_a_checkpoint_that_cannot_be_read_leaves_them_too(
    job: JobSpec, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(run)
    with pytest.raises(CheckpointError):
        open_again(job, run, None, (), None, None)
    assert files(run) == before


def test_a_run_that_is_closed_before_it_begins_shows_its_earlier_end_again(
    job: JobSpec, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its CPU differs: that is found when the facts of the run are written."""
    before = files(run)
    found = opened(job, run, monkeypatch, lambda: None)
    found.directory.write_facts(job, is_one_of_many=True)
    assert files(run) != before
    found.close()
    assert files(run) == before


def test_a_run_without_a_status_has_none_again(job: JobSpec, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / STATUS_FILE).unlink()
    before = files(run)
    found = opened(job, run, monkeypatch, lambda: None)
    assert read_status(run).state == "starting"
    found.close()
    assert files(run) == before


def test_a_disk_that_is_full_is_not_the_reason_that_a_resume_fails(
    job: JobSpec, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(run)

    def is_full(self: RunDirectory, status: RunStatus) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunDirectory, "write_status", is_full)
    found = opened(job, run, monkeypatch, lambda: None)
    assert files(run) == before
    found.close()
    assert files(run) == before
