"""A run goes on while its supervisor is alive and has not ended it; it has ended when nothing in its directory can
change any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from elastichost.errors import PreflightError
from elastichost.metrics import FINISHED_STATES, RunStatus
from elastichost.run_files import STATUS_FILE
from elastichost.runs.directory import lock_directory
from elastichost.runs.liveness import has_ended, is_alive, is_locked, is_running


@pytest.fixture
def dead_pid() -> int:
    """The pid of a process that has ended."""
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(done.stdout)


def write_status(run: Path, state: str, supervisor_pid: int) -> None:
    status = RunStatus(run_dir=str(run), job="shop", state=state, supervisor_pid=supervisor_pid)
    (run / STATUS_FILE).write_bytes(msgspec.json.encode(status))


def locked(directory: Path) -> int:
    return lock_directory(directory, "run directory", PreflightError("taken"))


def test_a_process_is_alive_until_it_ends(dead_pid: int) -> None:
    assert is_alive(os.getpid())
    assert not is_alive(dead_pid)


def test_a_process_that_nobody_has_waited_for_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(child.pid)
    child.wait()


@pytest.mark.parametrize("state", ["starting", "training", "stopping"])
def test_a_run_goes_on_while_its_supervisor_is_alive(tmp_path: Path, state: str) -> None:
    write_status(tmp_path, state, os.getpid())
    assert is_running(tmp_path)
    assert not has_ended(tmp_path)


@pytest.mark.parametrize("state", sorted(FINISHED_STATES))
def test_a_run_has_ended_when_its_supervisor_has_let_go_of_it(tmp_path: Path, state: str) -> None:
    """The status names the end before the last lines of the journal and the result are written."""
    write_status(tmp_path, state, os.getpid())
    lock = locked(tmp_path)
    assert is_locked(tmp_path)
    assert not is_running(tmp_path)
    assert not has_ended(tmp_path)
    os.close(lock)
    assert not is_locked(tmp_path)
    assert has_ended(tmp_path)


def test_a_run_has_ended_when_its_supervisor_was_killed(tmp_path: Path, dead_pid: int) -> None:
    write_status(tmp_path, "training", dead_pid)
    assert not is_running(tmp_path)
    assert has_ended(tmp_path)


def test_a_run_without_a_status_goes_on_while_its_directory_is_locked(tmp_path: Path) -> None:
    """A supervisor that dies before its first status leaves none, and those that follow its log must not wait."""
    lock = locked(tmp_path)
    assert not has_ended(tmp_path)
    os.close(lock)
    assert has_ended(tmp_path)


def test_a_directory_that_is_gone_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "gone")
