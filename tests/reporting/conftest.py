"""Fixtures: reports of constructed runs, and of one real run."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastichost.arena.host import arena_root
from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.facts import Report
from elastichost.runs.decisions import read_records
from elastichost.runs.events import CheckpointStarted, CheckpointWritten, EvaluationStarted, ProcessReady, RunEnded
from elastichost.tuner.records import BalanceLooked, Record, TunerLooked
from tests.reporting.remains import (
    BEGAN_S,
    NOW,
    STARTED,
    evaluated,
    line,
    lost,
    plan,
    status,
    tuned,
    worker,
    write_journal,
    write_lines,
    write_metrics,
    write_run,
)

LIMIT_S = 180.0  # the machine may be busy
# The time of a batch depends little on the load of the machine, so that speeds are measured quickly.
MODEL = """
import time

from elastichost.models import dlrm


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    model.register_forward_pre_hook(lambda *_: time.sleep(0.01))
    return model
"""
JOB = """
[job]
name = "small"
[model]
build = "model.py:build"
args = { bottom = [16, 8], top = [16, 1] }
[data]
format = "synthetic"
synthetic = { rows = 60000, test_rows = 2000, tables = 4, table_rows = 500, dense = 3, unit_rows = 8192 }
[tables.default]
dim = 8
rows = 500
[train]
batch_size = 128
epochs = 10000
[evaluate]
every_samples = 60000
[checkpoint]
every_s = 60
[resources]
workers = [1, 2]
servers = 1
cores = 2
[tuner]
mode = "act"
explore = "free"
block_s = 0.5
"""


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a constructed run of two minutes that has every kind of content."""
    run = write_run(tmp_path_factory.mktemp("full") / "run")
    write_journal(
        run,
        line(0.0, STARTED),
        line(0.5, plan(2, 2, "cold start", "served")),
        line(30.0, plan(3, 2, "try 3 workers", "served")),
        line(40.0, CheckpointStarted(1, "every 40 s")),
        line(41.0, CheckpointWritten("/runs/shop/checkpoints/step-400", 400, 500, 1 << 20, 1.0, 0.1, 0)),
        line(50.0, EvaluationStarted(5000, "half of it")),
        line(52.0, evaluated(5000, 0.7)),
        line(60.0, lost(worker())),
        line(60.2, ProcessReady(worker(incarnation=2))),
        line(119.0, evaluated(11900, 0.75)),
        line(120.0, RunEnded("done")),
    )
    (run / "metrics.db").unlink()
    write_metrics(run / "metrics.db", [status(float(at_s), 100 * at_s) for at_s in range(121)])
    owners = ((0, 0, 0), (0, 1, 1))
    looks: list[Record] = [
        BalanceLooked(BEGAN_S + at_s, ((0, 0, 60.0), (0, 1, 40.0)), owners, {0: 1.0, 1: 1.0}, 0.9, kind, moves)
        for at_s, kind, moves in ((91.0, "balanced", ()), (94.0, "moved", ((0, 0, 1),)), (97.0, "balanced", ()))
    ]
    write_lines(run / "decisions.jsonl", [*tuned(90), *looks])
    return read_report(run, is_running=False, now_utc=NOW)


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that was stopped after its tuner had made a trial and its model had been evaluated."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "model.py").write_text(MODEL)
    (folder / "job.toml").write_text(JOB)
    arenas, sockets = arena_root() / f"test-report-{os.getpid()}", Path(tempfile.mkdtemp(prefix="ehr-"))
    arenas.mkdir()
    environment = {**os.environ, "ELASTICHOST_ARENA_DIR": str(arenas), "XDG_RUNTIME_DIR": str(sockets)}
    command = [sys.executable, "-m", "elastichost", "run", str(folder / "job.toml"), "--run-dir", str(folder / "run")]
    process = subprocess.Popen([*command, "--dashboard", "no"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        _wait_until(lambda: _has_evaluated_and_decided(folder / "run"), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 75, errors
        yield folder / "run"
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        shutil.rmtree(arenas)
        shutil.rmtree(sockets)


def _wait_until(is_true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not is_true():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline_s
        select.select([], [], [], 0.1)


def _has_evaluated_and_decided(run: Path) -> bool:
    """Whether the run has an AUC and a decision of the tuner."""
    if not (run / "decisions.jsonl").exists() or not (run / "status.json").exists():
        return False
    looks = [one for one in read_records(run / "decisions.jsonl") if isinstance(one, TunerLooked)]
    has_auc = json.loads((run / "status.json").read_text())["test_auc"] is not None
    return has_auc and any(one.decision is not None for one in looks)
