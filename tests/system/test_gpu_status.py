"""A run with a GPU, which is recorded answers of NVML and Triton's interpreter: what it shows, stores and says."""

from __future__ import annotations

import json
import os
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elastichost.metrics import RunStatus, read_status
from elastichost.runs.events import GpuShareExceeded, GpuUnreadable
from tests.host.nvml.recorded import RECORDED_PIDS, TWO_BUSY
from tests.system.journals import events_of
from tests.system.test_run import JOB, ROOT, folder

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(200)]

__all__ = ["folder"]

SHADOW = ROOT / "tests" / "host" / "nvml" / "shadow"
LIMIT_S = 120.0


class GpuRun:
    """A run with one worker on the recorded GPU."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "run"
        self._told = folder / "nvml.json"
        self.tell(state=TWO_BUSY)
        job = folder / "job.toml"
        text = JOB.format(build="elastichost.models:dlrm", rows=50_000_000, epochs=1, restarts=3, every_s=60)
        text = text.replace('rows = "dynamic"', "rows = 500").replace("workers = 2", "workers = 1\ngpus = 1")
        job.write_text(text)
        command = [sys.executable, "-m", "elastichost", "run", str(job), "--run-dir", str(self.directory)]
        paths = os.pathsep.join((str(SHADOW), str(ROOT)))
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths, "NVML_DOUBLE": str(self._told)}
        self.process = subprocess.Popen(
            [*command, "--dashboard", "no"], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
        )

    def tell(self, **told: Any) -> None:
        new = self._told.with_suffix(".new")
        new.write_text(json.dumps(told))
        new.rename(self._told)

    def wait(self, is_so: Callable[[RunStatus], bool]) -> RunStatus:
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s and self.process.poll() is None:
            if (self.directory / "status.json").exists() and is_so(status := read_status(self.directory)):
                return status
            select.select([], [], [], 0.1)
        raise AssertionError(f"it did not come to that; {self.stop()}")

    def stop(self) -> str:
        self.process.terminate()
        return self.process.communicate(timeout=60)[1]


def test_the_gpu_of_a_run_is_measured_stored_and_its_loss_is_told(folder: Path) -> None:
    run = GpuRun(folder)
    try:
        status = run.wait(lambda status: any(one.state == "training" for one in status.processes))
        worker = next(one for one in status.processes if one.role == "worker")
        run.tell(state=TWO_BUSY, pids={RECORDED_PIDS[0]: worker.pid})
        status = run.wait(lambda status: status.gpus[0].own_bytes is not None and status.gpus[0].own_busy is not None)
        (gpu,) = status.gpus
        assert (gpu.name, gpu.busy, gpu.own_bytes) == ("NVIDIA H200", pytest.approx(1.0, abs=0.2), 811597824)
        assert next(one for one in status.processes if one.role == "worker").gpu_memory_bytes == 811597824
        run.tell(state=TWO_BUSY, is_lost=True)
        status = run.wait(lambda status: bool(status.gpus[0].problem))
        run.wait(lambda later: later.samples_trained > status.samples_trained)
    finally:
        shown = run.stop()
    assert run.process.returncode == 75, shown
    assert "NVML does not tell about the GPUs" in shown
    journal = run.directory / "journal.jsonl"
    assert len(events_of(journal, GpuUnreadable)) == 1
    assert events_of(journal, GpuShareExceeded) == []
    with closing(sqlite3.connect(run.directory / "metrics.db")) as connection:
        rows = connection.execute("SELECT idx, own_bytes FROM gpu WHERE own_bytes IS NOT NULL").fetchall()
    assert rows and set(rows) == {(0, 811597824)}
