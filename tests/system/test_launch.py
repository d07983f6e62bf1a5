"""The fork server and its client, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastichost.errors import PreflightError
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.events import Exited, ForkServerExited, LaunchEvent, Started, StartFailed
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.launch.poll import wait_readable

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 30.0


def collect(launcher: LocalLauncher, is_enough: Callable[[list[LaunchEvent]], bool]) -> list[LaunchEvent]:
    """Waits until `is_enough`; returns the events until then."""
    events: list[LaunchEvent] = []
    deadline_s = time.monotonic() + LIMIT_S
    while not is_enough(events):
        assert time.monotonic() < deadline_s, events
        wait_readable(launcher.descriptors(), 0.1)
        events += launcher.events()
    return events


def has(*kinds: type) -> Callable[[list[LaunchEvent]], bool]:
    return lambda events: all(any(isinstance(event, kind) for event in events) for kind in kinds)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < deadline_s
        wait_readable([], 0.01)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalLauncher]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with LocalLauncher(("json", "decimal"), ("tests.system.entries:prepare",)) as opened:
        opened.wait_prepared(LIMIT_S)
        yield opened


def spawn(
    launcher: LocalLauncher, folder: Path, entry: str, index: int = 0, incarnation: int = 1, **told: object
) -> Path:
    path = folder / f"{entry}-{index}.{incarnation}"
    arguments = json.dumps({"path": str(path), **told}).encode()
    launcher.spawn(
        SpawnRequest(
            ProcessId("worker", index, incarnation),
            f"tests.system.entries:{entry}",
            arguments,
            folder / "log",
            cores=(min(os.sched_getaffinity(0)),),
            environment={"PROBE_VALUE": "seen"},
        )
    )
    return path


def test_a_child_is_what_the_supervisor_asked_for(launcher: LocalLauncher, tmp_path: Path) -> None:
    path = spawn(launcher, tmp_path, "tell", code=7, modules=["decimal"])
    started, exited = collect(launcher, has(Started, Exited))
    assert isinstance(started, Started)
    assert isinstance(exited, Exited)
    assert (exited.code, exited.pid, exited.cause) == (7, started.pid, "exit code 7")
    facts = json.loads(path.read_text())
    assert facts["pid"] == started.pid
    assert facts["parent"] == os.getpid()
    assert facts["session"] == started.pid
    assert facts["cores"] == [min(os.sched_getaffinity(0))]
    assert facts["environment"] == "seen"
    assert facts["omp"] == "1"
    assert facts["oom_score_adj"] >= 300
    assert facts["ignores_interrupt"]
    assert facts["imported"] == ["decimal"]
    assert len(facts["descriptors"]) == 4  # 0, 1, 2 and the descriptor of the listing
    assert "told" in (tmp_path / "log").read_text()
    assert launcher.processes() == {}


def test_an_exception_ends_in_the_log(launcher: LocalLauncher, tmp_path: Path) -> None:
    spawn(launcher, tmp_path, "fail")
    exited = collect(launcher, has(Exited))[-1]
    assert isinstance(exited, Exited)
    assert exited.code == 1
    assert "RuntimeError: asked to fail" in (tmp_path / "log").read_text()


def test_an_unknown_entry_is_an_exit_not_a_hang(launcher: LocalLauncher, tmp_path: Path) -> None:
    spawn(launcher, tmp_path, "no_such_entry")
    exited = collect(launcher, has(Exited))[-1]
    assert isinstance(exited, Exited)
    assert exited.code == 1
    assert "no_such_entry" in (tmp_path / "log").read_text()


def test_a_kill_is_seen_with_its_signal_and_takes_grandchildren_along(launcher: LocalLauncher, tmp_path: Path) -> None:
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists)
    collect(launcher, has(Started))
    _, grandchild = json.loads(path.read_text())
    launcher.kill(ProcessId("worker", 0, 1))
    exited = collect(launcher, has(Exited))[-1]
    assert isinstance(exited, Exited)
    assert exited.cause == "signal 9 (SIGKILL)"
    wait_until(lambda: is_gone(grandchild))


def test_a_lost_fork_server_is_replaced_and_its_children_go_on(launcher: LocalLauncher, tmp_path: Path) -> None:
    path = spawn(launcher, tmp_path, "sleep")
    wait_until(path.exists)
    collect(launcher, has(Started))
    before = launcher.server_pid
    os.kill(before, signal.SIGKILL)
    collect(launcher, has(ForkServerExited))
    assert launcher.server_pid != before
    spawn(launcher, tmp_path, "tell", index=1)
    collect(launcher, has(Started, Exited))
    assert list(launcher.processes()) == [ProcessId("worker", 0, 1)]


def test_a_request_that_dies_with_the_fork_server_has_failed(launcher: LocalLauncher, tmp_path: Path) -> None:
    os.kill(launcher.server_pid, signal.SIGSTOP)
    path = spawn(launcher, tmp_path, "tell")
    os.kill(launcher.server_pid, signal.SIGKILL)
    events = collect(launcher, has(StartFailed, ForkServerExited))
    assert StartFailed(ProcessId("worker", 0, 1), "the fork server died") in events
    assert not path.exists()


def test_close_ends_processes_and_what_they_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    launcher = LocalLauncher(("json",))
    launcher.wait_prepared(LIMIT_S)
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists)
    server = launcher.server_pid
    launcher.close()
    for pid in (*json.loads(path.read_text()), server):
        wait_until(lambda pid=pid: is_gone(pid))


def test_processes_and_their_fork_server_ignore_sigterm(launcher: LocalLauncher, tmp_path: Path) -> None:
    """Slurm and systemd send it to every process of a job; only the supervisor saves and ends the others."""
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists)
    process, started = json.loads(path.read_text())
    for pid in (launcher.server_pid, process, started):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: is_gone(started))
    wait_until(spawn(launcher, tmp_path, "sleep", index=1).exists)
    assert not is_gone(process)


def test_a_failed_import_of_libraries_is_reported_with_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with LocalLauncher(("no_such_library",)) as launcher:
        prepared = launcher.wait_prepared(LIMIT_S)
        assert "ModuleNotFoundError" in prepared.error


def test_a_fork_server_that_is_killed_before_it_is_ready_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with LocalLauncher(("json",)) as launcher:
        before = launcher.server_pid
        os.kill(before, signal.SIGKILL)
        assert launcher.wait_prepared(LIMIT_S).error == ""
        assert launcher.server_pid != before


def test_a_fork_server_that_cannot_live_is_a_broken_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with LocalLauncher(("tests.system.suicide",)) as launcher, pytest.raises(PreflightError, match="fork server ended"):
        launcher.wait_prepared(LIMIT_S)


def begin_supervisor(folder: Path, *doomed: Path) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """Starts a supervisor with two processes, the second of which has a child. Also returns their pids. doomed:
    directories that the fork server must remove."""
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "tests.system.supervise_and_hang", str(folder), *map(str, doomed)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert supervisor.stdout is not None
    with supervisor.stdout:
        return supervisor, json.loads(supervisor.stdout.readline())


def test_processes_end_when_supervisor_and_fork_server_die_in_one_instant(tmp_path: Path) -> None:
    folder = tmp_path / "arena"
    folder.mkdir()
    supervisor, told = begin_supervisor(tmp_path, folder)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (supervisor.pid, told["server"]):
            os.kill(pid, number)
    supervisor.wait(LIMIT_S)
    began_s = time.monotonic()
    for pid in (told["server"], *told["own"]):
        wait_until(lambda pid=pid: is_gone(pid))
    assert time.monotonic() - began_s < 10.0
    assert folder.exists(), "no process remains that could remove the folder"
    for pid in set(told["children"]) - set(told["own"]):
        os.kill(pid, signal.SIGKILL)  # the launcher is not responsible for processes that a process starts itself


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_killed_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    doomed = [tmp_path / "arena", tmp_path / "sockets"]
    for folder in doomed:
        folder.mkdir()
        (folder / "file").write_text("rows")
    supervisor, told = begin_supervisor(tmp_path, *doomed)
    supervisor.send_signal(number)
    supervisor.wait(LIMIT_S)
    for pid in (told["server"], *told["children"]):
        wait_until(lambda pid=pid: is_gone(pid))
    assert not any(folder.exists() for folder in doomed)
