"""The packages that loggers write for: each gets every value of a real run, equal to the run's history."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import elastichost as eh
from tests.system.test_python import arguments

pytestmark = [pytest.mark.system, pytest.mark.thorough]


Curve = list[tuple[int, float]]
START_S = 60.0
BLOCK_BYTES = 32 << 10
TAGS = ("train/loss", "test/auc", "test/logloss")


def history_of(run: eh.Run, name: str) -> Curve:
    """(samples, value) of one column of the run's history."""
    rows = run.history.select(["samples", name]).to_pylist()
    return [(row["samples"], row[name]) for row in rows if row[name] is not None]


def test_tensorboard_has_the_history_value_for_value(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = eh.train(**arguments(), loggers=["tensorboard"], dir=tmp_path / "run")
    shown = EventAccumulator(str(run.dir / "tensorboard")).Reload()
    shown_loss = [(one.step, one.value) for one in shown.Scalars("train/loss")]
    assert shown_loss == history_of(run, "loss")
    assert len(shown_loss) > 10
    ((samples, auc),) = history_of(run, "test_auc")
    assert [(one.step, one.value) for one in shown.Scalars("test/auc")] == [(samples, np.float32(auc))]


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[str]:
    """A tracking server of its own, as a team would run it."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    with (folder / "server.log").open("wb") as log:
        environ = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # it leaves files in /dev/shm
        server = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None and time.monotonic() < deadline_s, (folder / "server.log").read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_mlflow_gets_everything_from_a_server_that_comes_later(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    port = free_port()
    logger = eh.loggers.MLflow(uri=f"http://127.0.0.1:{port}", experiment="clicks", run_name="first")
    parts = arguments(logging={"finish_s": 2 * START_S})
    del parts["progress"]
    handle = eh.start(**parts, loggers=[logger], dir=tmp_path / "run")
    while handle.is_running and not list((tmp_path / "run").glob("loggers")):
        time.sleep(0.05)
    with mlflow_server(tmp_path, port) as address:
        run = handle.wait()
        client = MlflowClient(address)
        experiment = client.get_experiment_by_name("clicks")
        assert experiment is not None
        (found,) = client.search_runs([experiment.experiment_id])
        assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
        assert found.data.params["train.batch_size"] == str(run.job.spec.train.batch_size)
        for tag, column in zip(TAGS, ("loss", "test_auc", "test_logloss"), strict=True):
            got = sorted((one.step, one.value) for one in client.get_metric_history(found.info.run_id, tag))
            assert got == history_of(run, column), tag


def test_weights_and_biases_keeps_the_history_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path))
    logger = eh.loggers.WandB(project="clicks", mode="offline")
    run = eh.train(**arguments(), loggers=[logger], dir=tmp_path / "run")
    (kept,) = (run.dir / "wandb").glob("offline-run-*/*.wandb")
    found: dict[str, Curve] = {}
    for data in records_of(kept.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        items = {".".join(one.nested_key) or one.key: json.loads(one.value_json) for one in record.history.item}
        for tag in TAGS:
            if tag in items:
                found.setdefault(tag, []).append((items["samples"], items[tag]))
    assert found["train/loss"] == history_of(run, "loss")
    assert found["test/auc"] == history_of(run, "test_auc")


def records_of(content: bytes) -> Iterator[bytes]:
    """The records of a file of W&B: 7 bytes, then LevelDB's log format. There a block has 32 KiB, and a part of a
    record has a checksum (4 bytes), a length (2 bytes) and a kind: 1 whole, 2 first, 3 middle, 4 last."""
    at, record = 7, b""
    while at + 7 <= len(content):
        rest = BLOCK_BYTES - at % BLOCK_BYTES
        if rest < 7:
            at += rest
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        if kind == 0:
            return
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""
