"""Whole runs with real processes: kills, hangs, signals, resumes.

Each test checks at its end that no process of the run, no arena and no socket directory remains.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastichost.arena.host import arena_root
from elastichost.checkpoint.format import latest
from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.plan import ProcessId
from elastichost.runs.events import (
    CheckpointAbandoned,
    CheckpointWritten,
    Event,
    ForkServerLost,
    JournalLine,
    LeaseGranted,
    PlanChanged,
    ProcessLost,
    ProcessReady,
    ProcessStartFailed,
    ProcessUnreachable,
    SupervisorStalled,
)
from tests.system.journals import Kind, events_of, lines_of
from tests.system.zygote import Zygote

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 100.0

# The part that all small jobs share; each test adds its settings.
TRAINED = """
[model]
build = "{build}"
args = {{ bottom = [16, 8], top = [16, 1] }}
[data]
format = "synthetic"
synthetic = {{ rows = {rows}, test_rows = 3000, tables = 4, table_rows = 500, dense = 3, unit_rows = 8192 }}
[tables.default]
dim = 8
rows = "dynamic"
[train]
batch_size = 128
epochs = {epochs}
[tuner]
mode = "off"
"""
JOB = f"""
[job]
name = "system-test"
seed = 7
{TRAINED}
[resources]
workers = 2
restarts = {{restarts}}
[checkpoint]
every_s = {{every_s}}
[supervision]
hang_timeout_s = 3
"""


@functools.cache
def zygote() -> Zygote:
    """The zygote of this test session; its processes end with it."""
    made = Zygote()
    atexit.register(made.close)
    return made


class Supervised:
    """A run, controlled from outside as by a user."""

    module = "tests.system.supervise"

    def __init__(self, folder: Path, *, resume: bool = False, template: str = JOB, **settings: Any) -> None:
        facts = {"build": "elastichost.models:dlrm", "rows": 200_000, "epochs": 1, "restarts": 3, "every_s": 60}
        facts.update(settings)
        self.run_dir = folder / "run"
        job = folder / "job.toml"
        job.write_text(template.format(**facts))
        more = [str(self.run_dir)] if resume else []
        self.process = zygote().fork(self.module, [str(job), str(self.run_dir), *more])

    def status(self) -> dict[str, Any]:
        path = self.run_dir / "status.json"
        if not path.exists():
            return {}
        facts: dict[str, Any] = json.loads(path.read_text())
        return facts if facts["supervisor_pid"] == self.process.pid else {}

    def wait_until(self, is_true: Callable[[], Any]) -> Any:
        deadline_s = time.monotonic() + LIMIT_S
        while not (found := is_true()):
            assert time.monotonic() < deadline_s, self.status()
            assert self.process.poll() is None, self.finish()
            select.select([], [], [], 0.02)
        return found

    def wait_ready(self, incarnation: str) -> None:
        self.wait_until(lambda: incarnation in map(str, self.ready()))

    def pid(self, name: str) -> int:
        """The pid of a process that trains or serves."""

        def find() -> int:
            for one in self.status().get("processes", []):
                is_it = f"{one['role']}-{one['index']}" == name
                if is_it and one["state"] in ("training", "serving") and psutil.pid_exists(one["pid"]):
                    return int(one["pid"])
            return 0

        return int(self.wait_until(find))

    def wait_trained(self, samples: int) -> None:
        self.wait_until(lambda: self.status().get("samples_trained", 0) >= samples)

    def fork_server(self) -> int:
        """The pid of the fork server: the process that started first. Its children may have lower pids."""
        children = psutil.Process(self.process.pid).children()
        return min(children, key=lambda child: child.create_time()).pid

    def finish(self) -> tuple[int, str]:
        """(exit code, stderr)"""
        _, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, errors

    def result(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.run_dir / "result.json").read_text())
        return facts

    def events(self, *kinds: type[Kind]) -> list[Kind]:
        """Events of these kinds, in order."""
        return events_of(self.run_dir / "journal.jsonl", *kinds)

    def lines(self, *kinds: type[Event]) -> list[JournalLine]:
        """Lines of the journal with events of these kinds, in order; without kinds all lines."""
        return lines_of(self.run_dir / "journal.jsonl", *kinds)

    def lost(self) -> list[ProcessLost]:
        """Processes that ended while they were needed, in order. Checks that every requested process could start."""
        assert self.events(ProcessStartFailed) == []
        return self.events(ProcessLost)

    def ready(self) -> list[ProcessId]:
        """Processes that became ready, in order."""
        return [event.process for event in self.events(ProcessReady)]

    def was_asked_to_stop(self) -> bool:
        return any("asked to stop" in event.reason for event in self.events(PlanChanged))


def processes_of(folder: Path) -> list[int]:
    """Processes that have a file of the run mapped or open, or have it in their arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            told = " ".join(process.cmdline())
            mapped = Path(f"/proc/{process.pid}/maps").read_text()
        except (psutil.Error, OSError):
            continue
        if process.pid != os.getpid() and (str(folder) in told or str(folder) in mapped):
            found.append(process.pid)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A scratch directory with its own arena root; it is checked for leftovers after the test."""
    with folder_of(tmp_path, monkeypatch) as found:
        yield found


@contextlib.contextmanager
def folder_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A context manager that does the work of `folder`."""
    arenas = arena_root() / f"test-{os.getpid()}-{tmp_path.name}"
    arenas.mkdir()
    sockets = Path(tempfile.mkdtemp(prefix="ehs-"))  # short, because the path of a socket has at most 108 bytes
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(arenas))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sockets))
    try:
        yield tmp_path
        deadline_s = time.monotonic() + 5.0
        while (processes_of(arenas) or os.listdir(arenas) or os.listdir(sockets)) and time.monotonic() < deadline_s:
            select.select([], [], [], 0.05)
        assert os.listdir(arenas) == os.listdir(sockets) == []
        assert processes_of(arenas) == []
    finally:
        shutil.rmtree(arenas)
        shutil.rmtree(sockets)


SLOW_MODEL = """
import time

from elastichost.models import dlrm


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    model.register_forward_pre_hook(lambda *_: time.sleep(0.001))
    return model
"""


@pytest.mark.thorough
def test_kills_of_every_process_lose_nothing(folder: Path) -> None:
    rows = 900_000
    (folder / "slow.py").write_text(SLOW_MODEL)  # slow: otherwise the run is done while a new fork server still imports
    run = Supervised(folder, build=f"{folder}/slow.py:build", rows=rows, every_s=1.5)
    run.wait_trained(1)
    os.kill(run.pid("worker-0"), signal.SIGKILL)
    run.wait_ready("worker-0.2")
    os.kill(run.pid("server-0"), signal.SIGKILL)
    run.wait_ready("server-0.2")
    os.kill(run.fork_server(), signal.SIGKILL)
    os.kill(run.pid("worker-1"), signal.SIGKILL)
    # Incarnation 2 if the end of the fork server was detected first; 3 if the worker's was (its start then failed).
    run.wait_until(lambda: {ProcessId("worker", 1, 2), ProcessId("worker", 1, 3)} & set(run.ready()))
    code, errors = run.finish()
    assert code == 0, errors
    result = run.result()
    assert result["samples"] == {"planned": rows, "trained": rows, "skipped": 0, "quarantined": 0}
    lost, not_started = run.events(ProcessLost), run.events(ProcessStartFailed)
    assert len(lost) == 3
    assert len(not_started) <= 1
    assert result["processes"]["restarts"] == len(lost) + len(not_started)
    assert result["torn_batches"] <= 2, "at most one for each killed worker"
    assert result["test"]["auc"] > 0.6
    assert len(run.events(ForkServerLost)) == 1
    found = latest(run.run_dir / "checkpoints")
    assert found is not None
    assert found.manifest.samples_trained == rows


def test_ctrl_c_once_saves_and_resume_goes_on(folder: Path) -> None:
    run = Supervised(folder, rows=400_000)
    run.wait_trained(20_000)
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 75, errors
    stopped = run.result()
    assert stopped["status"] == "stopped"
    trained = stopped["samples"]["trained"]
    assert 20_000 <= trained < 400_000
    assert run.events(ProcessUnreachable) == []
    found = latest(run.run_dir / "checkpoints")
    assert found is not None
    assert found.manifest.samples_trained == trained

    resumed = Supervised(folder, resume=True, rows=400_000)
    code, errors = resumed.finish()
    assert code == 0, errors
    result = resumed.result()
    assert result["samples"] == {"planned": 400_000, "trained": 400_000, "skipped": 0, "quarantined": 0}
    leased = [event.lease for event in resumed.events(LeaseGranted)]
    assert len(set(leased)) == len(leased)


@pytest.mark.thorough
def test_bounded_workers_that_wait_for_each_other_come_to_a_checkpoint(folder: Path) -> None:
    bounded = JOB.replace("[train]\n", '[train]\nmode = "bounded"\nstaleness = 1\n')
    run = Supervised(folder, template=bounded, rows=300_000, every_s=0.1)
    code, errors = run.finish()
    assert code == 0, errors
    assert len(run.events(CheckpointWritten)) > 2
    assert run.events(CheckpointAbandoned) == []


def test_sigterm_to_every_process_twice_stops_as_one_signal_does(folder: Path) -> None:
    """Slurm and systemd send it to all processes of a job, and a script may hand it on."""
    run = Supervised(folder, rows=50_000_000)
    run.wait_trained(1)
    processes = [one.pid for one in psutil.Process(run.process.pid).children(recursive=True)]
    for pid in (*processes, run.process.pid):
        os.kill(pid, signal.SIGTERM)
    run.wait_until(run.was_asked_to_stop)
    run.process.send_signal(signal.SIGTERM)
    code, errors = run.finish()
    assert code == 75, errors
    assert run.events(CheckpointWritten)
    assert run.events(ProcessLost) == []
    assert run.events(ForkServerLost) == []


def test_ctrl_c_twice_kills(folder: Path) -> None:
    run = Supervised(folder, rows=50_000_000)
    run.wait_trained(1)
    os.kill(run.pid("worker-0"), signal.SIGSTOP)  # it will not drain
    run.process.send_signal(signal.SIGTERM)
    run.wait_until(run.was_asked_to_stop)
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 130, errors
    assert run.result()["status"] == "killed"


def test_a_killed_supervisor_leaves_nothing_and_its_run_can_be_resumed(folder: Path) -> None:
    run = Supervised(folder, rows=400_000, every_s=1)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    pids = [run.pid(name) for name in ("server-0", "worker-0", "worker-1")]
    run.process.kill()
    run.finish()
    deadline_s = time.monotonic() + 5.0
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline_s:
        select.select([], [], [], 0.02)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    resumed = Supervised(folder, resume=True, rows=400_000)
    code, errors = resumed.finish()
    assert code == 0, errors
    assert resumed.result()["samples"]["trained"] == 400_000


@pytest.mark.thorough
def test_a_hang_is_found_and_healed_and_a_second_supervisor_refused(folder: Path) -> None:
    run = Supervised(folder, rows=500_000, restarts=1)
    run.wait_trained(1)
    os.kill(run.pid("worker-1"), signal.SIGSTOP)
    second = Supervised(folder, rows=500_000, restarts=1)
    code, errors = second.finish()
    assert code == 3
    assert "another supervisor works in" in errors
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == 500_000
    assert run.result()["processes"]["restarts"] == 1
    (lost,) = run.lost()
    assert lost.process == ProcessId("worker", 1, 1)
    assert "no progress" in lost.reason


@pytest.mark.thorough
def test_a_run_that_was_stopped_whole_goes_on(folder: Path) -> None:
    """Ctrl-Z and fg for longer than the hang timeout do not count as a hang."""
    run = Supervised(folder, rows=500_000)
    run.wait_trained(1)
    run.pid("worker-0"), run.pid("worker-1"), run.pid("server-0")
    processes = [run.process.pid, *(child.pid for child in psutil.Process(run.process.pid).children(recursive=True))]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    select.select([], [], [], 4.0)  # the hang timeout is 3 s
    for pid in processes:
        os.kill(pid, signal.SIGCONT)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == 500_000
    assert run.result()["processes"]["restarts"] == 0
    assert len(run.events(SupervisorStalled)) == 1


def test_a_spent_restart_budget_ends_the_job_with_the_reason(folder: Path) -> None:
    run = Supervised(folder, rows=50_000_000, restarts=0)
    run.wait_trained(1)
    os.kill(run.pid("worker-1"), signal.SIGKILL)
    code, errors = run.finish()
    assert code == 4
    assert "worker-1 ended 1 time in 60 s" in errors
    assert "SIGKILL" in errors
    assert run.result()["status"] == "failed"


def test_a_model_that_cannot_be_built_is_the_users_error(folder: Path) -> None:
    (folder / "model.py").write_text("def build(tables, num_dense, **args):\n    raise ValueError('too few towers')\n")
    run = Supervised(folder, build=f"{folder}/model.py:build")
    code, errors = run.finish()
    assert code == 3
    assert "too few towers" in errors
    assert not run.run_dir.exists(), "a job that never ran must leave no run directory"


def test_what_preflight_finds_leaves_no_run_directory(folder: Path) -> None:
    run = Supervised(folder, build=f"{folder}/missing.py:build")
    code, errors = run.finish()
    assert code == 3
    assert "missing.py" in errors
    assert not run.run_dir.exists()


POISONED = """
import os, signal
import torch
from elastichost.models import dlrm

def build(tables, num_dense, **args):
    inner = dlrm(tables, num_dense, **args)

    class Poisoned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, dense, sparse):
            if self.training and bool((dense[:, 0] >= {worst!r}).any()):
                os.kill(os.getpid(), signal.SIGKILL)
            return self.inner(dense, sparse)

    return Poisoned()
"""


def test_a_batch_that_kills_every_worker_is_quarantined_and_reported(folder: Path) -> None:
    settings = {"rows": 20_000, "build": f"{folder}/model.py:build"}
    job = folder / "look.toml"
    job.write_text(JOB.format(**{"epochs": 1, "restarts": 3, "every_s": 60, **settings}))
    reader = open_reader(load_job(job, environ={}), "train")
    units = reader.describe().units
    batches = [batch for unit in units for batch in reader.batches(unit, 0, unit.samples, 4096)]
    worst = max(float(batch.dense[:, 0].max()) for batch in batches)
    (folder / "model.py").write_text(POISONED.format(worst=worst))
    run = Supervised(folder, **settings)
    code, errors = run.finish()
    assert code == 1, errors
    result = run.result()
    assert result["status"] == "quarantined"
    assert result["samples"] == {"planned": 20_000, "trained": 20_000 - 128, "skipped": 0, "quarantined": 128}
    (entry,) = result["quarantined"]
    assert entry["failures"] == 3
    assert entry["stop"] - entry["start"] == 128
    assert result["processes"]["restarts"] == 3
    assert result["test"]["auc"] > 0.5
