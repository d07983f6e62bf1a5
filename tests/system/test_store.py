"""Runs whose training data is in a store that speaks S3: they train what a run on local files trains, wait for a server
that is gone, and stop so that they can be resumed when it stays away."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_proxy import SourceProxy
from elastichost.runs.events import CheckpointWritten, SourceRecovered, SourceTroubled
from elastichost.wire.applied import read_applied
from tests.datasets.sources.s3_server import S3Server, s3_environment, store
from tests.system.test_run import Supervised, folder
from tests.system.test_source import SOURCE

__all__ = ["folder", "s3_environment", "store"]

pytestmark = pytest.mark.system

ROWS, FILES = 24_000, 2
ALL_ROWS = ROWS * FILES
FORMS = SOURCE.replace('label = "y"', 'test = "{test}"\nlabel = "y"')


@pytest.fixture
def data(tmp_path: Path, store: S3Server) -> Path:
    for number in range(FILES):
        numbers = np.random.default_rng(number).integers(0, 1 << 40, (3, ROWS))
        columns = {"y": (numbers[0] % 2).astype(np.float32), "x": numbers[1].astype(np.float32), "c": numbers[2] % 1000}
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(columns | {"d": numbers[1] % 1000}), file, row_group_size=2048)
        store.put_file(file, f"run/{number}.parquet")
    return tmp_path


def losses(run: Supervised) -> list[float]:
    applied = read_applied(run.run_dir)
    found: list[float] = applied["loss_sum"][applied["samples"] > 0].tolist()
    return found


def place(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_a_run_from_a_store_has_the_bits_of_a_local_one_though_the_server_goes_and_a_worker_dies(
    folder: Path, data: Path, store: S3Server
) -> None:
    knobs = {"connections": 2, "tuner": "off", "mode": "sync", "epochs": 1}
    here = f"{data}/*.parquet"
    local = Supervised(place(folder, "local"), template=FORMS, url=here, test=f"{data}/0.parquet", **knobs)
    assert local.finish()[0] == 0
    with SourceProxy("127.0.0.1", store.port, bytes_per_s=80e3) as proxy:
        there, test = (store.url(f"run/{name}.parquet", proxy.endpoint) for name in ("*", "0"))
        run = Supervised(place(folder, "remote"), template=FORMS, url=there, test=test, **knobs)
        run.wait_trained(2000)
        worker = run.pid("worker-0")
        proxy.order(Order("gone", 600.0))
        run.wait_until(lambda: run.lines(SourceTroubled))
        os.kill(worker, signal.SIGKILL)
        waits = "worker-0.2"  # its successor cannot read the footers before the server is back
        run.wait_until(lambda: [line for line in run.lines(SourceTroubled) if str(line.event.process) == waits])
        proxy.order(Order("gone", 0.0))
        code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"]["trained"] == ALL_ROWS
    assert losses(run) == losses(local) and len(losses(run)) > 100
    assert run.result()["test"] == local.result()["test"]
    assert {str(line.event.process) for line in run.lines(SourceRecovered)} >= {waits}
    assert len(run.lost()) == 1


def test_a_run_whose_store_stays_away_stops_and_trains_the_rest_when_it_is_resumed(
    folder: Path, data: Path, store: S3Server
) -> None:
    knobs = {"connections": "2, patience_s = 1.5", "tuner": "off", "mode": "async", "epochs": 1}
    with SourceProxy("127.0.0.1", store.port, bytes_per_s=80e3) as proxy:
        there, test = (store.url(f"run/{name}.parquet", proxy.endpoint) for name in ("*", "0"))
        run = Supervised(folder, template=FORMS, url=there, test=test, **knobs)
        run.wait_trained(2000)
        worker = run.pid("worker-0")
        proxy.order(Order("gone", 600.0))
        run.wait_until(lambda: run.lines(SourceTroubled))
        os.kill(worker, signal.SIGKILL)
        code, errors = run.finish()
        assert code == 75, errors
        assert "gone" in [line.event.trouble for line in run.lines(SourceTroubled)]
        trained = run.result()["samples"]["trained"]
        assert 2000 <= trained < ALL_ROWS
        assert run.lines(CheckpointWritten), "what was trained is saved"
        early = Supervised(folder, template=FORMS, url=there, test=test, resume=True, **knobs)
        code, errors = early.finish()
        assert code == 75 and "goes on when the source works again" in errors, (code, errors)
        assert early.result()["samples"]["trained"] == trained, "the run stays as it was"
        proxy.order(Order("gone", 0.0))
        again = Supervised(folder, template=FORMS, url=there, test=test, resume=True, **knobs)
        code, errors = again.finish()
    assert code == 0, errors
    assert again.result()["samples"]["trained"] == ALL_ROWS
