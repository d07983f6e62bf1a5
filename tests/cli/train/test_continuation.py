"""`run --continue`: the same command begins a run, goes on with it, and begins anew where nothing was saved."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elastichost.checkpoint.format import MANIFEST_NAME
from elastichost.checkpoint.places import RUN_FILE
from elastichost.cli.train.continuation import is_resumable
from elastichost.config.job import load_job
from elastichost.errors import CheckpointError, PreflightError
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.runs.directory import RunDirectory, lock_directory
from tests.checkpoint.test_checkpoint_format import write_checkpoint
from tests.cli.conftest import Elastichost
from tests.cli.train.clusters.slow_job import SlowJob

WORDS = ("--continue", "--dashboard", "no")
JOB = """
[job]
name = "shop"
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[checkpoint]
directory = "{kept}"
"""


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


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was killed before its first checkpoint."""
    (tmp_path / "job.toml").write_text(JOB.format(kept=tmp_path / "kept"))
    job = load_job(tmp_path / "job.toml", environ={})
    begun = RunDirectory.open(tmp_path / "run", job, resume=False, run_id="r1")
    begun.write_facts(job, is_one_of_many=True)
    begun.journal.write_text("{}\n")
    begun.close()
    return begun.path


@pytest.mark.parametrize("place", ["run/checkpoints", "kept/shop-r1"])
def test_a_run_whose_checkpoints_cannot_be_read_is_left_as_it_is(tmp_path: Path, run: Path, place: str) -> None:
    damaged = tmp_path / place / "step-1"
    damaged.mkdir(parents=True)
    (damaged / MANIFEST_NAME).write_text("garbage")
    with pytest.raises(CheckpointError, match="step-1 cannot be used"):
        is_resumable(run, ())
    (run / RUN_FILE).unlink()
    with pytest.raises(CheckpointError, match="step-1 cannot be used"):
        is_resumable(run, ())
    assert damaged.exists() and run.exists()
    assert not list(tmp_path.glob("run-without-checkpoint-*"))


@pytest.mark.parametrize("content", ["", "{", None])
def test_a_run_whose_identity_is_damaged_or_lost_is_left_as_it_is(run: Path, content: str | None) -> None:
    write_checkpoint(run / "checkpoints", 5)
    assert is_resumable(run, ())
    if content is None:
        (run / RUN_FILE).unlink()
    else:
        (run / RUN_FILE).write_text(content)
    with pytest.raises(CheckpointError, match=r"run.json cannot be read|has lost its run.json"):
        is_resumable(run, ())
    assert run.exists()


def test_a_checkpoint_without_a_job_file_is_left_as_it_is(run: Path) -> None:
    write_checkpoint(run / "checkpoints", 5)
    (run / RESOLVED_JOB_FILE).unlink()
    assert is_resumable(run, ())


def test_a_run_with_an_identity_that_saved_nothing_is_set_aside(tmp_path: Path, run: Path) -> None:
    assert not is_resumable(run, ())
    assert not run.exists() and list(tmp_path.glob("run-without-checkpoint-*"))


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
