"""`run --continue`: the same command begins a run, goes on with it, and begins anew where nothing was saved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elastichost.cli.train.continuation import is_resumable
from elastichost.errors import PreflightError
from elastichost.runs.directory import lock_directory
from tests.cli.conftest import Elastichost
from tests.cli.train.clusters.slow_job import SlowJob

WORDS = ("--continue", "--dashboard", "no")


def test_a_directory_without_a_run_begins_one(tmp_path: Path) -> None:
    assert not is_resumable(tmp_path / "missing", ())
    assert not is_resumable(tmp_path, ())
    assert tmp_path.exists()


def test_a_run_that_saved_nothing_is_set_aside(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / "journal.jsonl").write_text("{}\n")
    assert not is_resumable(run, ())
    assert not run.exists()
    [kept] = tmp_path.glob("run-without-checkpoint-*")
    assert (kept / "journal.jsonl").exists()


def test_a_run_with_a_supervisor_is_left_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    lock = lock_directory(run, "the run directory", PreflightError("taken"))
    (run / "journal.jsonl").write_text("{}\n")
    try:
        with pytest.raises(PreflightError, match="a supervisor works in"):
            is_resumable(run, ())
    finally:
        os.close(lock)
    assert run.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--continue"], "--continue needs --run-dir"),
        (["--continue", "--run-dir", "x", "job.toml"], "--continue takes one job"),
    ],
)
def test_it_needs_one_job_and_a_directory(
    elastichost: Elastichost, job_file: Path, words: list[str], said: str
) -> None:
    outcome = elastichost("run", str(job_file), *words)
    assert outcome.code == 2 and said in outcome.stderr


@pytest.mark.system
def test_the_same_command_begins_resumes_and_returns_the_result(tmp_path: Path) -> None:
    job = SlowJob(tmp_path, rows=12_000)
    command = ("run", str(job.path), "--run-dir", str(job.run_dir), *WORDS)
    with subprocess.Popen(
        [sys.executable, "-m", "elastichost", *command], cwd=job.folder, env=job.environment, stderr=subprocess.DEVNULL
    ) as first:
        while job.trained() == 0 and first.poll() is None:
            time.sleep(0.05)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 75
    assert 0 < job.samples()["trained"] < job.rows
    (tmp_path / "copy").mkdir()  # a cluster may copy the model to another directory for the next start
    (job.folder / "slow.py").rename(tmp_path / "copy" / "slow.py")
    job.path.rename(tmp_path / "copy" / "slow.toml")
    command = ("run", str(tmp_path / "copy" / "slow.toml"), "--run-dir", str(job.run_dir), *WORDS)
    other = job.call(*command, "--set", "train.batch_size=64")
    assert other.returncode == 2 and "[train] is changed" in other.stderr
    assert job.call(*command).returncode == 0
    job.assert_done()
    again = job.call(*command)
    assert again.returncode == 0
    job.assert_done()
