"""Fixtures: run directories as a supervisor leaves them, and the command line as a user calls it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from elastichost.cli import run_command_line
from elastichost.errors import PreflightError
from elastichost.metrics import ProcessStatus, RunStatus
from elastichost.plan import ProcessId
from elastichost.runs.directory import lock_directory
from elastichost.runs.events import JournalLine, ProcessStarted, TunerDecided
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.decision import Decision

JOB = '[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "synthetic"\n'


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a verb."""

    code: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        return self.stdout.splitlines()[-1]


Elastichost = Callable[..., Outcome]


@pytest.fixture
def elastichost(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Elastichost:
    """A function that calls the command line in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> Outcome:
        code = run_command_line(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """A run with a status that names this process as its supervisor, as a killed one whose pid was given to another
    process leaves it."""
    run = tmp_path / "runs" / "shop-20260101T000000Z-abc123"
    (run / "logs").mkdir(parents=True)
    (run / "job.resolved.toml").write_text(JOB)
    (run.parent / "latest").symlink_to(run.name)
    write_status(run, "training", os.getpid())
    started = ProcessStarted(ProcessId("worker", 0, 1), 7)
    decided = TunerDecided(Decision("settle", Configuration(1, 1), "stay, nothing is known yet"))
    lines = (
        JournalLine("2026-01-01T00:00:01.000Z", 1.0, started, "start-1.1"),
        JournalLine("2026-01-01T00:00:02.000Z", 2.0, decided),
    )
    (run / "journal.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    (run / "logs" / "worker-0.1.log").write_text("first\nincarnation\n")
    (run / "logs" / "worker-0.2.log").write_text("second incarnation\n")
    (run / "logs" / "server-0.1.log").write_text("serving\n")
    return run


@pytest.fixture
def running_directory(run_directory: Path) -> Iterator[Path]:
    """The same run, with a supervisor that works in its directory."""
    lock = lock_directory(run_directory, "the run directory", PreflightError("taken"))
    yield run_directory
    os.close(lock)


def write_status(run: Path, state: str, supervisor_pid: int) -> None:
    process = ProcessStatus("worker", 0, 2, 4242, "running", cores=(0,), samples_per_s=10.0)
    status = RunStatus(
        run_dir=str(run),
        job="shop",
        state=state,
        supervisor_pid=supervisor_pid,
        samples_planned=1000,
        samples_trained=250,
        processes=(process,),
    )
    (run / "status.json").write_bytes(msgspec.json.encode(status))
