"""The agent of another host and its launcher in the supervisor: real processes over a plain pipe, without ssh."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.host import arena_root, create_directory
from elastichost.arena.layout import plan_layout
from elastichost.arena.owner import owner_of
from elastichost.arena.replica import ChangedWords, Changes
from elastichost.config.hosts import HostSection
from elastichost.errors import ArenaFullError, PreflightError
from elastichost.plan import ProcessId
from elastichost.specs import DenseSpec
from elastichost.supervisor.launch.events import AgentLost, Exited, LaunchEvent, LogNotOpened, Started, StartFailed
from elastichost.supervisor.launch.launcher import SpawnRequest
from elastichost.supervisor.launch.poll import wait_readable
from elastichost.supervisor.remote.messages import SourceFile, WordsChangedMsg
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from tests.supervisor.memory.test_gauge import model

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0
WORKER = ProcessId("worker", 0, 1)
RUN = "agenttest"

pytestmark = pytest.mark.system


def wait_until(is_true: Callable[[], bool], launcher: RemoteLauncher | None = None) -> list[LaunchEvent]:
    """Waits until `is_true`; returns the events until then."""
    events: list[LaunchEvent] = []
    deadline_s = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < deadline_s, events
        wait_readable(launcher.descriptors() if launcher is not None else (), 0.02)
        events += launcher.events() if launcher is not None else []
    return events


def collect(launcher: RemoteLauncher, *kinds: type) -> list[LaunchEvent]:
    """Waits until an event of each kind has arrived; returns the events until then."""
    events: list[LaunchEvent] = []
    deadline_s = time.monotonic() + LIMIT_S
    while not all(any(isinstance(event, kind) for event in events) for kind in kinds):
        assert time.monotonic() < deadline_s, events
        wait_readable(launcher.descriptors(), 0.1)
        events += launcher.events()
    return events


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Hosts:
    """Creates launchers of agents of one run, and ends them."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.made: list[RemoteLauncher] = []

    def launcher(self, number: int = 1, timeout_s: float = 30.0, **settings: str) -> RemoteLauncher:
        """A launcher; its agent has sent Welcome."""
        launcher = RemoteLauncher(number, HostSection(transport="local", name=f"h{number}", **settings), timeout_s)
        self.made.append(launcher)
        launcher.wait(lambda: launcher.welcome is not None, LIMIT_S, "to answer")
        return launcher

    def opened(self, number: int = 1, timeout_s: float = 30.0) -> RemoteLauncher:
        """A launcher; its agent has created the directories of the run and imported the libraries."""
        launcher = self.launcher(number, timeout_s)
        files = (SourceFile("job.resolved.toml", b"[job]\n"), SourceFile("source/model.py", b"x = 1\n"))
        launcher.open(self.run_id, files, ("json",), ())
        launcher.wait(lambda: launcher.opened is not None and launcher.prepared is not None, LIMIT_S, "to open")
        return launcher


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hosts]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    arenas = arena_root() / f"test-{os.getpid()}-agent"
    arenas.mkdir()
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(arenas))
    made = Hosts(f"{RUN}{os.getpid()}")
    yield made
    for launcher in made.made:
        launcher.close()
    assert list(arenas.iterdir()) == []
    arenas.rmdir()


def directories(launcher: RemoteLauncher) -> tuple[Path, ...]:
    """The arena, the sockets and the run directory on the agent's machine."""
    assert launcher.opened is not None
    return (Path(launcher.opened.arena), Path(launcher.opened.sockets), Path(launcher.opened.run_dir))


def spawn(launcher: RemoteLauncher, folder: Path, entry: str, **told: object) -> Path:
    path = folder / f"{entry}-{launcher.number}"
    arguments = json.dumps({"path": str(path), **told}).encode()
    launcher.spawn(
        SpawnRequest(
            WORKER,
            f"tests.system.entries:{entry}",
            arguments,
            folder / "log",
            host=launcher.number,
            cores=(min(os.sched_getaffinity(0)),),
            environment={"PROBE_VALUE": "seen"},
        )
    )
    return path


def test_a_remote_process_is_as_requested_and_its_log_arrives_here(hosts: Hosts, tmp_path: Path) -> None:
    launcher = hosts.opened()
    path = spawn(launcher, tmp_path, "tell", code=7)
    started, exited = collect(launcher, Started, Exited)
    assert isinstance(started, Started) and isinstance(exited, Exited)
    assert (exited.code, exited.pid, exited.process) == (7, started.pid, WORKER)
    assert exited.cpu_s > 0
    facts = json.loads(path.read_text())
    assert launcher.opened is not None
    assert (facts["pid"], facts["parent"], facts["environment"]) == (started.pid, launcher.opened.pid, "seen")
    assert (tmp_path / "log").read_text() == "told\n"
    assert launcher.processes() == {}


def test_the_run_directory_there_has_the_files_that_were_sent(hosts: Hosts) -> None:
    launcher = hosts.opened()
    *_, run_dir = directories(launcher)
    assert (run_dir / "source" / "model.py").read_text() == "x = 1\n"
    for directory in directories(launcher):
        assert directory.stat().st_mode & 0o777 == 0o700


def test_a_kill_and_a_refusal_are_seen(hosts: Hosts, tmp_path: Path) -> None:
    launcher = hosts.opened()
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists, launcher)
    launcher.kill(WORKER)
    exited = collect(launcher, Exited)[-1]
    assert isinstance(exited, Exited) and exited.cause == "signal 9 (SIGKILL)"
    for pid in json.loads(path.read_text()):
        wait_until(lambda pid=pid: is_gone(pid))


def test_arena_updates_go_both_ways(hosts: Hosts, tmp_path: Path) -> None:
    launcher = hosts.opened()
    told: list[WordsChangedMsg] = []
    launcher.on_words = told.append
    launcher.make_arena(plan_layout(model(), 7, 1 << 28), LIMIT_S)
    there = Arena.attach(directories(launcher)[0])  # as a PS of that host
    own = tmp_path / "double"
    create_directory(own, owner_of(os.getpid(), tmp_path))
    double = Arena.create(own, there.layout, whole=False)
    double.board.server(2).grant(1 << 20, 1 << 10)
    double.board.set_horizon(0, 5000)
    mine = ChangedWords(double.board.words, ~double.board.of_servers)
    launcher.set_words(*mine.take().packed())
    wait_until(lambda: there.board.server(2).granted == 1 << 20 and there.board.horizon(0) == 5000, launcher)
    assert len(mine.take()) == 0
    there.board.server(2).note_taken(4096)
    there.control[3] = 77
    # The agent may look between the two writes, and then sends two messages.
    wait_until(lambda: any(w.board_values for w in told) and any(w.header_values for w in told), launcher)
    newest = next(word for word in told if word.header_values)
    headers = Changes.unpacked(newest.header_positions, newest.header_values)
    assert (headers.positions.tolist(), headers.values.tolist()) == ([3], [77])
    assert newest.used_bytes > 0 and newest.free_bytes > 0
    double.close()
    there.close()


def test_invalid_messages_end_the_agent(hosts: Hosts) -> None:
    launcher = hosts.opened()
    launcher.make_arena(plan_layout(model(), 7, 1 << 28), LIMIT_S)
    there = Arena.attach(directories(launcher)[0])
    of_servers = np.flatnonzero(there.board.of_servers)[:1]
    launcher.set_words(*Changes(of_servers, np.ones(1, np.int64)).packed())
    lost = collect(launcher, AgentLost)[0]
    assert isinstance(lost, AgentLost)
    assert "not one that the sender may write" in lost.reason
    assert not there.board.words[of_servers].any()
    there.close()


def test_an_arena_that_finds_no_room_there_is_the_same_error_as_here(hosts: Hosts) -> None:
    launcher = hosts.opened()
    large = DenseSpec((), parameters=15 << 30, elements=15 << 30)  # needs more than 300 GB
    layout = plan_layout(msgspec.structs.replace(model(), dense=large), 7, 1 << 28)
    with pytest.raises(ArenaFullError, match="host h1: the headers and the dense part"):
        launcher.make_arena(layout, LIMIT_S)


def test_nothing_stays_when_the_supervisor_ends(hosts: Hosts, tmp_path: Path) -> None:
    launcher = hosts.opened()
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists, launcher)
    there = directories(launcher)
    launcher.close()
    for pid in json.loads(path.read_text()):
        wait_until(lambda pid=pid: is_gone(pid))
    assert not any(directory.exists() for directory in there)


def test_nothing_stays_when_the_pipe_breaks(hosts: Hosts, tmp_path: Path) -> None:
    """As after a kill of ssh: the agent is not asked to end."""
    launcher = hosts.opened()
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists, launcher)
    launcher.hang_up()
    for pid in json.loads(path.read_text()):
        wait_until(lambda pid=pid: is_gone(pid))
    wait_until(lambda: not any(directory.exists() for directory in directories(launcher)))


def test_a_process_whose_log_cannot_be_opened_there_starts_without_it(hosts: Hosts, tmp_path: Path) -> None:
    launcher = hosts.opened()
    logs = directories(launcher)[2] / "logs"
    logs.rmdir()
    logs.write_text("a file in the place of the folder")
    spawn(launcher, tmp_path, "tell", code=7)
    told, _, exited = collect(launcher, LogNotOpened, Started, Exited)
    assert told == LogNotOpened(WORKER, f"{logs / f'{WORKER}.log'} on host h1", "Not a directory")
    assert isinstance(exited, Exited) and exited.code == 7
    assert not launcher.lost


def test_a_killed_agent_is_a_lost_host_and_leaves_nothing(hosts: Hosts, tmp_path: Path) -> None:
    launcher = hosts.opened()
    path = spawn(launcher, tmp_path, "sleep", child=True)
    wait_until(path.exists, launcher)
    os.kill(launcher.pid, signal.SIGKILL)
    lost, *_, exited = collect(launcher, AgentLost, Exited)
    assert isinstance(lost, AgentLost) and isinstance(exited, Exited)
    assert (lost.host, lost.name, exited.process, exited.code) == (1, "h1", WORKER, -signal.SIGKILL)
    for pid in json.loads(path.read_text()):
        wait_until(lambda pid=pid: is_gone(pid))
    wait_until(lambda: not any(directory.exists() for directory in directories(launcher)))
    spawn(launcher, tmp_path, "tell")
    assert [type(event) for event in launcher.events()] == [StartFailed]
    assert launcher.descriptors() == () and launcher.processes() == {}


def test_a_silent_host_is_lost_and_its_agent_is_replaced_on_request(hosts: Hosts, tmp_path: Path) -> None:
    cut_off = hosts.opened(timeout_s=1.0)
    path = spawn(cut_off, tmp_path, "sleep")
    wait_until(path.exists, cut_off)
    os.kill(cut_off.pid, signal.SIGSTOP)
    lost = collect(cut_off, AgentLost)[0]
    assert isinstance(lost, AgentLost) and "its agent has sent nothing for" in lost.reason
    again = hosts.opened()
    assert directories(again) == directories(cut_off)
    for pid in (cut_off.pid, *json.loads(path.read_text())):
        wait_until(lambda pid=pid: is_gone(pid))
    spawn(again, tmp_path, "tell")
    collect(again, Started, Exited)


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/bin/false", "the other end has closed the connection"),
        ("/bin/echo", "the other end has closed the connection: -m elastichost"),
    ],
)
def test_a_program_that_is_no_agent_is_reported_with_its_output(hosts: Hosts, python: str, words: str) -> None:
    with pytest.raises(PreflightError, match=words):
        hosts.launcher(python=python)
