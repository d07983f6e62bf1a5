"""A job that trains for some seconds, so that it can be stopped while it trains, and the verb `plan --for` in a process
of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["SlowJob", "search_path"]

ROOT = Path(__file__).parents[4]
SLEEP_S = 0.05
MODEL = f"""
import time

from elastichost.models import dlrm


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    model.register_forward_pre_hook(lambda *_: time.sleep({SLEEP_S}))
    return model
"""
JOB = """
[model]
build = "slow.py:build"
args = {{ bottom = [8, 4], top = [8, 1] }}
[data]
format = "synthetic"
[data.synthetic]
rows = {rows}
test_rows = 1000
tables = 3
table_rows = 50
dense = 2
unit_rows = 1000
[tables.default]
dim = 4
[train]
batch_size = 128
[resources]
workers = 1
{resources}
[tuner]
mode = "off"
"""


def search_path() -> str:
    """PYTHONPATH with this repository first."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


class SlowJob:
    """A job file with its model in a directory. rows: 128 of them take SLEEP_S."""

    def __init__(self, folder: Path, rows: int = 40_000, resources: str = "") -> None:
        self.folder, self.rows = folder, rows
        self.path, self.run_dir = folder / "slow.toml", folder / "run"
        (folder / "slow.py").write_text(MODEL)
        self.path.write_text(JOB.format(rows=rows, resources=resources))
        self.environment = {**os.environ, "PYTHONPATH": search_path()}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Calls elastichost in the directory of the job."""
        command = [sys.executable, "-m", "elastichost", *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=100
        )

    def plan(self, cluster: str, output: str, *more: str) -> Path:
        """Writes what starts the job on a cluster, and returns the file."""
        path = self.folder / output
        done = self.call("plan", str(self.path), "--for", cluster, "--output", str(path), *more)
        assert done.returncode == 0, done.stderr
        return path

    def trained(self) -> int:
        """Samples that the run has trained."""
        status = self._read("status.json")
        return int(status["samples_trained"]) if status["state"] == "training" else 0

    def samples(self) -> dict[str, int]:
        """The account of the samples when the run has ended."""
        return dict(self._read("result.json")["samples"])

    def assert_done(self) -> None:
        """Asserts that every sample was trained once."""
        expected = {"planned": self.rows, "trained": self.rows, "skipped": 0, "quarantined": 0}
        assert self.samples() == expected, self.samples()

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.run_dir / name).read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {"state": "", "samples": {}, "samples_trained": 0}
