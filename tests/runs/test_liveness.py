"""A run goes on while its supervisor is alive and has not ended it; it has ended when nothing in its directory can
change any more."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from elastichost.errors import PreflightError
from elastichost.metrics import FINISHED_STATES, RunStatus
from elastichost.run_files import STATUS_FILE
from elastichost.runs import liveness
from elastichost.runs.directory import lock_directory
from elastichost.runs.liveness import LOCK_FILE, has_ended, is_alive, is_locked, is_running, is_worked_in


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
def test_a_run_goes_on_while_its_supervisor_is_alive(tmp_path: Path, dead_pid: int, state: str) -> None:
    """The pid says nothing: the supervisor may be in another container, or on another host that has this directory."""
    write_status(tmp_path, state, dead_pid)
    lock = locked(tmp_path)
    assert is_running(tmp_path)
    assert not has_ended(tmp_path)
    os.close(lock)


@pytest.mark.parametrize("pid", [os.getpid(), 1], ids=["own", "init"])
def test_another_process_with_the_pid_of_a_killed_supervisor_is_not_taken_for_it(tmp_path: Path, pid: int) -> None:
    os.close(locked(tmp_path))
    write_status(tmp_path, "training", pid)
    assert not is_running(tmp_path)
    assert has_ended(tmp_path)


def test_a_reader_that_may_not_open_the_lock_goes_by_pid_and_user(
    tmp_path: Path, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(liveness, "_is_held", refuses)
    write_status(tmp_path, "training", os.getpid())
    assert is_running(tmp_path)
    write_status(tmp_path, "training", dead_pid)
    assert not is_running(tmp_path)
    write_status(tmp_path, "training", os.getpid())
    before = Path.stat
    of_others = SimpleNamespace(st_uid=os.getuid() + 1)
    monkeypatch.setattr(Path, "stat", lambda path: of_others if path.parts[1] == "proc" else before(path))
    assert not is_running(tmp_path), "the process belongs to another user than the status"


def test_a_dispatcher_works_in_its_directory_while_it_holds_the_lock(tmp_path: Path, dead_pid: int) -> None:
    (tmp_path / "host.json").touch()
    assert not is_worked_in(tmp_path, "host.json", os.getpid()), "there is no lock yet"
    lock = locked(tmp_path)
    assert is_worked_in(tmp_path, "host.json", dead_pid), "it may be in another container"
    os.close(lock)
    assert not is_worked_in(tmp_path, "host.json", os.getpid()), "another process may have its pid"


def test_a_user_who_may_not_open_the_lock_of_a_dispatcher_goes_by_its_own_file(
    tmp_path: Path, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(liveness, "_is_held", refuses)
    (tmp_path / "host.json").touch()
    assert is_worked_in(tmp_path, "host.json", os.getpid())
    assert not is_worked_in(tmp_path, "host.json", dead_pid)
    assert not is_worked_in(tmp_path, "other.json", os.getpid()), "the file tells whose process it is"


def test_readers_do_not_take_each_other_for_a_supervisor_or_keep_one_from_its_directory(tmp_path: Path) -> None:
    os.close(locked(tmp_path))
    write_status(tmp_path, "training", os.getpid())
    looking = os.open(tmp_path / LOCK_FILE, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert not is_running(tmp_path)
    assert not is_locked(tmp_path)
    timer = threading.Timer(0.02, os.close, (looking,))
    timer.start()
    os.close(locked(tmp_path))
    timer.join()


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
