"""Whole runs on a folder into which files arrive while they train."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.runs.events import ProcessLost, Warned
from tests.system.test_run import Supervised, folder
from tests.system.test_source import SOURCE

__all__ = ["folder"]

pytestmark = pytest.mark.system

ROWS = 20_000


def write(path: Path, label: float) -> None:
    """Rows of one label. A label that is not 0 or 1 ends a run that reads it."""
    numbers = np.random.default_rng(5).integers(0, 1 << 40, ROWS)
    columns = {"y": np.full(ROWS, label, np.float32), "x": numbers.astype(np.float32), "c": numbers % 1000}
    columns["d"] = numbers % 100
    pq.write_table(pa.table(columns), path, row_group_size=4096)


def test_a_successor_and_a_resumed_run_read_the_files_that_the_run_began_with(folder: Path) -> None:
    data, epochs = folder / "data", 40
    data.mkdir()
    write(data / "b.parquet", 0.0)
    write(data / "c.parquet", 1.0)
    settings = {"url": f"{data}/*.parquet", "connections": 1, "tuner": "off", "mode": "async", "epochs": epochs}
    run = Supervised(folder, template=SOURCE, **settings)
    run.wait_trained(2 * ROWS)
    write(data / "a.parquet", 7.0)
    os.kill(run.pid("worker-0"), signal.SIGKILL)
    run.wait_ready("worker-0.1")
    run.wait_trained(run.status()["samples_trained"] + 2 * ROWS)
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 75, errors
    os.utime(data / "c.parquet", ns=(1, 1))
    resumed = Supervised(folder, resume=True, template=SOURCE, **settings)
    code, errors = resumed.finish()
    assert code == 0, errors
    assert resumed.result()["samples"]["trained"] == 2 * ROWS * epochs
    assert len(resumed.events(ProcessLost)) == 1
    assert [one for one in resumed.events(Warned) if "c.parquet was written since the run began" in one.message]
