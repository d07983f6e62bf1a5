"""A running dispatcher, controlled as by a user, and jobs for it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import psutil

from elastichost.dispatcher.facts import HostStatus, JobStatus, read_host
from elastichost.errors import PreflightError
from elastichost.metrics import RunStatus, read_status
from elastichost.runs.events import Event, JournalLine
from tests.system.journals import Kind, events_of, lines_of
from tests.system.test_run import LIMIT_S, TRAINED, zygote

__all__ = [
    "BROKEN",
    "ENDLESS",
    "FOREVER",
    "LIAR",
    "SLOW",
    "Host",
    "assert_all_trained",
    "below",
    "events",
    "hurry",
    "wait_gone",
    "write_job",
]

Found = TypeVar("Found")
JOB = f"""
[job]
name = "{{name}}"
{TRAINED}
[resources]
workers = {{workers}}
[checkpoint]
every_s = {{every_s}}
[supervision]
hang_timeout_s = {{hang_timeout_s}}
keep_arena_s = {{keep_s}}
"""
# An epoch takes a minimum time on any machine, until the test calls `hurry`.
SLOW = """
import time
from pathlib import Path

from elastichost.models import dlrm

HURRY = Path(__file__).with_suffix(".hurry")


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    model.register_forward_pre_hook(lambda *_: time.sleep(0.0 if HURRY.exists() else 0.02))
    return model
"""
BROKEN = """
def build(tables, num_dense, **args):
    raise ValueError("too few towers")
"""
# Building this model creates a file and then takes ten minutes.
ENDLESS = """
import time
from pathlib import Path


def build(tables, num_dense, **args):
    Path(__file__).with_suffix(".begun").touch()
    time.sleep(600)
"""
# The memory use is not visible before training: then the job takes 2.4 GB, twice the memory of all jobs together.
LIAR = """
import time

import numpy as np

from elastichost.models import dlrm

batches, taken = [], []


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)

    def take(module, inputs):
        time.sleep(0.01)
        batches.append(module.training)
        if sum(batches) > 50 and not taken:
            taken.append(np.ones(2_400_000_000, dtype=np.uint8))

    model.register_forward_pre_hook(take)
    return model
"""
TOGETHER = ("--policy", "fifo", "--policy-set", "most_jobs=8")
ROWS = 40_000
FOREVER = {"epochs": 100_000, "rows": 8192}


def write_job(place: Path, name: str, model: str = "", **settings: object) -> str:
    """Writes a job file and returns its path. model: source of the user's module."""
    facts: dict[str, object] = {
        "name": name,
        "build": "elastichost.models:dlrm",
        "rows": ROWS,
        "epochs": 1,
        "workers": 1,
        "every_s": 60,
        "keep_s": 2,
        "hang_timeout_s": 5,
    }
    if model:
        (place / f"{name}.py").write_text(model)
        facts["build"] = f"{place}/{name}.py:build"
    path = place / f"{name}.toml"
    path.write_text(JOB.format(**{**facts, **settings}))
    return str(path)


def hurry(place: Path, *names: str) -> None:
    """Ends the artificial delays of these jobs, now and in later incarnations."""
    for name in names:
        (place / f"{name}.hurry").touch()


class Host:
    """A running dispatcher, controlled from outside as by a user."""

    made: ClassVar[list[Host]] = []

    def __init__(self, place: Path, *arguments: str) -> None:
        self.sockets = Path(os.environ["XDG_RUNTIME_DIR"])
        self.place, self.directory = place, place / "host"
        self.process = zygote().fork("tests.system.call_in", [str(place), *arguments])
        self.made.append(self)

    @classmethod
    def batch(cls, place: Path, *jobs: str, memory: str = "6GiB") -> Host:
        return cls(place, "run", *jobs, "--run-dir", "host", "--memory", memory, "--dashboard", "no", *TOGETHER)

    @classmethod
    def resumed(cls, place: Path) -> Host:
        return cls(place, "resume", "host", "--dashboard", "no")

    @classmethod
    def open(cls, place: Path) -> Host:
        return cls(place, "host", "--host-dir", "host", "--plain", "--memory", "6GiB", *TOGETHER)

    def status(self) -> HostStatus | None:
        """The status of the host; None if it has not written one yet."""
        try:
            status = read_host(self.directory)
        except PreflightError:
            return None
        return status if status.pid == self.process.pid else None

    def find(self, job: str) -> JobStatus | None:
        status = self.status()
        return next((one for one in status.jobs if one.job == job), None) if status is not None else None

    def job(self, job: str) -> JobStatus:
        found = self.find(job)
        assert found is not None
        return found

    def wait(self, is_true: Callable[[], Found | None], limit_s: float = LIMIT_S) -> Found:
        deadline_s = time.monotonic() + limit_s
        while not (found := is_true()):
            assert time.monotonic() < deadline_s, self.status()
            assert self.process.poll() is None, self.finish()
            select.select([], [], [], 0.02)
        return found

    def wait_state(self, job: str, *states: str) -> JobStatus:
        """Waits until a job is in one of these states."""

        def is_so() -> JobStatus | None:
            found = self.find(job)
            return found if found is not None and found.state in states else None

        return self.wait(is_so)

    def wait_over(self, *jobs: str) -> None:
        for job in jobs:
            self.wait_state(job, "done", "failed", "cancelled", "stopped")

    def run(self, job: str) -> RunStatus | None:
        """The status of the job's present run."""
        found = self.find(job)
        try:
            status = read_status(Path(found.run_dir)) if found is not None else None
        except PreflightError:
            return None
        return status if status is not None and psutil.pid_exists(status.supervisor_pid) else None

    def wait_trained(self, job: str, samples: int = 1) -> RunStatus:
        def is_so() -> RunStatus | None:
            run = self.run(job)
            return run if run is not None and run.state == "training" and run.samples_trained >= samples else None

        return self.wait(is_so)

    def pid(self, job: str, name: str) -> int:
        """The pid of a worker or PS of a job."""

        def find() -> int:
            run = self.run(job)
            here = [one for one in run.processes if one.name == name] if run is not None else []
            return next((one.pid for one in here if one.state in ("training", "serving")), 0)

        return self.wait(find)

    def events(self, kind: type[Kind], job: str = "") -> list[Kind]:
        """Events of a kind in the host's journal, in order; with `job`, only the events of that job."""
        path = self.directory / "journal.jsonl"
        events = events_of(path, kind) if path.exists() else []
        return [event for event in events if not job or event.subject == job]

    def lines(self, *kinds: type[Event]) -> list[JournalLine]:
        """Lines of the host's own journal with events of these kinds, in order."""
        return lines_of(self.directory / "journal.jsonl", *kinds)

    def finish(self) -> tuple[int, str]:
        """(exit code, stderr)"""
        _, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, errors

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.finish()[0]


def result(job: JobStatus) -> dict[str, object]:
    facts: dict[str, object] = json.loads((Path(job.run_dir) / "result.json").read_text())
    return facts


def events(job: JobStatus, *kinds: type[Kind]) -> list[Kind]:
    """Events of these kinds in the journal of the job's run, in order."""
    return events_of(Path(job.run_dir) / "journal.jsonl", *kinds)


def assert_all_trained(job: JobStatus, rows: int = ROWS) -> None:
    assert job.state == "done", job
    assert result(job)["samples"] == {"planned": rows, "trained": rows, "skipped": 0, "quarantined": 0}
    assert job.samples_trained == rows


def below(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def is_over(process: psutil.Process) -> bool:
    """Whether a process has ended; it may still be a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def wait_gone(processes: list[psutil.Process], limit_s: float) -> None:
    _, alive = psutil.wait_procs(processes, timeout=limit_s)
    assert all(map(is_over, alive))
