"""What a shell proposes, asked for as bash does it: by environment variables, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = "from elastichost.__main__ import main; main()"


def proposals(directory: Path, line: str) -> list[str]:
    """The proposals for the last word of a command line."""
    asked = {"_ELASTICHOST_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    environ = {**os.environ, **asked, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=directory, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_verbs_and_options(tmp_path: Path) -> None:
    assert proposals(tmp_path, "elastichost exp") == ["export"]
    assert proposals(tmp_path, "elastichost run --dash") == ["--dashboard"]


def test_runs(run_directory: Path) -> None:
    here = run_directory.parents[1]
    assert proposals(here, "elastichost status ") == ["latest", run_directory.name]
    assert proposals(here, "elastichost report sh") == [run_directory.name]
    assert proposals(here, "elastichost resume runs/sh") == [f"runs/{run_directory.name}"]
    assert proposals(here, "elastichost logs latest --process s") == ["server-0"]


def test_job_files(job_file: Path) -> None:
    (job_file.parent / "notes.txt").touch()
    (job_file.parent / "jobs").mkdir()
    (job_file.parent / "jobs" / "other.toml").touch()
    assert proposals(job_file.parent, "elastichost run ") == ["job.toml", "jobs/"]
    assert proposals(job_file.parent, "elastichost config show jobs/o") == ["jobs/other.toml"]
    assert proposals(job_file.parent, "elastichost plan none/o") == []


@pytest.mark.parametrize(
    ("begun", "proposed"),
    [
        ("train.batch", ["train.batch_size="]),
        ("tables.default.admit", ["tables.default.admit_after="]),
        ("train.optimizer_rows.n", ["train.optimizer_rows.name="]),
    ],
)
def test_settings(tmp_path: Path, begun: str, proposed: list[str]) -> None:
    assert proposals(tmp_path, f"elastichost run job.toml --set {begun}") == proposed


def test_kinds_of_events_and_sizes(run_directory: Path) -> None:
    here = run_directory.parents[1]
    assert proposals(here, "elastichost events --kind process_l") == ["process_lost"]
    assert proposals(here, "elastichost scale worker") == ["workers=", "worker_cores="]


def test_the_script_for_a_shell_is_printed() -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "_ELASTICHOST_COMPLETE": "source_bash"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    assert "_ELASTICHOST_COMPLETE=complete_bash" in done.stdout
