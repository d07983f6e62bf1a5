"""A run with a GPU, which is recorded answers of NVML and Triton's interpreter: what it shows, stores and says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from elastichost.runs.events import GpuShareExceeded, GpuUnreadable
from tests.host.nvml.recorded import RECORDED_PIDS
from tests.system.gpu_runs import GpuRun, gpu_job
from tests.system.journals import events_of
from tests.system.test_run import folder

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")
pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(200)]

__all__ = ["folder"]


def test_the_gpu_of_a_run_is_measured_and_stored_and_the_silence_of_nvml_is_told(folder: Path) -> None:
    run = GpuRun(folder, gpu_job(folder, "workers = 1\ngpus = 1"))
    try:
        status = run.wait(lambda status: any(one.state == "training" for one in status.processes))
        worker = next(one for one in status.processes if one.role == "worker")
        run.tell(pids={RECORDED_PIDS[0]: worker.pid})
        status = run.wait(lambda status: status.gpus[0].own_bytes is not None and status.gpus[0].own_busy is not None)
        (gpu,) = status.gpus
        assert (gpu.name, gpu.busy, gpu.own_bytes) == ("NVIDIA H200", pytest.approx(1.0, abs=0.2), 811597824)
        assert next(one for one in status.processes if one.role == "worker").gpu_memory_bytes == 811597824
        run.tell(is_mute=True)
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
