"""From a CSV file to a trained run, without an edit in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.train.test_init import write_csv
from tests.system.test_run import ROOT, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.timeout(200)]

__all__ = ["folder"]


def call(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "elastichost", *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_job_of_init_trains_unedited(folder: Path) -> None:
    write_csv(folder / "clicks.csv")
    (folder / "job.toml").write_text(call(folder, "init", "clicks.csv", "--label", "clicked"))
    call(folder, "run", "job.toml", "--run-dir", "run", "--dashboard", "no")
    result = json.loads((folder / "run" / "result.json").read_text())
    assert (result["status"], result["samples"]["trained"]) == ("done", 1080)
    assert 0 < result["test"]["auc"] < 1
