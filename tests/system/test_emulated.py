"""Runs with emulated computing: real processes, messages and ledgers, at the size of a cloud."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost.emulation.model import HOT_ROWS as HOT_TABLE_ROWS
from elastichost.emulation.model import ROWS as TABLE_ROWS
from elastichost.emulation.model import TABLES
from elastichost.ps.applied_log import read_applied
from elastichost.runs.events import BatchTorn, CheckpointWritten, ProcessRepinned
from tests.system.test_run import ROOT, Supervised, folder
from tests.system.test_scale import assert_trained_once, names, scale, stop

pytestmark = pytest.mark.system

__all__ = ["folder"]

JOB = """
[job]
name = "emulated-test"
seed = 7
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
synthetic = {{ rows = {rows}, test_rows = 1, tables = 1, unit_rows = 4096 }}
[train]
batch_size = 100
mode = "{mode}"
[resources]
workers = {workers}
servers = {servers}
hosts = {arenas}
restarts = 3
[checkpoint]
every_s = {every_s}
[supervision]
hang_timeout_s = 3
[emulate]
enabled = true
hosts = 8
cores_per_host = 16
compute_s = {compute_s}
serial_s = 0.01
server_s = 0.002
bytes = 100_000
overlap = "{overlap}"
new_ids = {{ factor = {factor}, exponent = 0.7, row_bytes = 64 }}
"""
ROWS = 80_000
FIXED_ROWS = HOT_TABLE_ROWS + (TABLES - 1) * TABLE_ROWS
SETTINGS = {
    "mode": "async",
    "workers": 8,
    "servers": 3,
    "arenas": 1,
    "every_s": 60,
    "compute_s": 0.1,
    "overlap": "nothing",
    "factor": 0.0,
}


class Emulated(Supervised):
    """A supervisor that the zygote does not fork: without torch, its processes are small."""

    def __init__(self, folder: Path, *, resume: bool = False, **settings: object) -> None:
        self.run_dir, job = folder / "run", folder / "job.toml"
        job.write_text(JOB.format(**{**SETTINGS, **settings}))
        more = [str(self.run_dir)] if resume else []
        command = [sys.executable, "-m", "tests.system.supervise", str(job), str(self.run_dir), *more]
        self.process = subprocess.Popen(  # type: ignore[assignment]
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )


def finish(run: Supervised, rows: int) -> None:
    """Waits for the end of the run, and checks that every sample was trained once."""
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": rows, "trained": rows, "skipped": 0, "quarantined": 0}
    assert_trained_once(run)


@pytest.mark.thorough
def test_forty_workers_and_kills_of_every_role(folder: Path) -> None:
    run = Emulated(folder, rows=50_000_000, every_s=2.0)
    run.wait_trained(1)
    for victim in ("worker-3", "server-0", "server-2"):
        os.kill(run.pid(victim), signal.SIGKILL)
        run.wait_ready(f"{victim}.2")
    grown = scale(run, workers=40, worker_cores=2)
    first = grown.data["request_to_first_sample_s"]
    assert isinstance(first, dict) and len(first) == 32 and None not in first.values()
    run.wait_until(lambda: {f"worker-{index}" for index in range(40)} < names(run))
    os.kill(run.pid("worker-39"), signal.SIGKILL)
    run.wait_ready("worker-39.2")
    stop(run)
    assert run.result()["processes"]["restarts"] == 4
    assert run.events(BatchTorn) == []
    assert len(run.events(CheckpointWritten)) >= 2
    moved = {event.process.name: event.cores for event in run.events(ProcessRepinned)}
    assert len(moved["worker-0"]) == 3, "worker-0 must get two cores of its own and one spare core"
    assert max(moved["worker-0"]) > max(os.sched_getaffinity(0)), "emulated cores exceed the cores of this host"


@pytest.mark.thorough
def test_ps_of_several_hosts_come_and_go_and_the_run_is_resumed(folder: Path) -> None:
    """New rows appear all the time in the arenas of two hosts, and requests overlap with computing."""
    growing = {"factor": 20.0, "rows": ROWS}
    settings = {"workers": 3, "servers": 1, "arenas": 2, "overlap": "both", "compute_s": 0.05, **growing}
    run = Emulated(folder, **settings)
    run.wait_trained(1)
    spread = scale(run, servers=4)
    assert spread.data["buckets_moved"] == (TABLES + 16) * 3 // 4
    scale(run, servers=2, workers=2)
    stop(run)
    assert 0 < run.result()["samples"]["trained"] < ROWS
    resumed = Emulated(folder, resume=True, **settings)
    scale(resumed, workers=12)
    finish(resumed, ROWS)
    kept = resumed.events(CheckpointWritten)[-1].rows
    assert kept - FIXED_ROWS == pytest.approx(20.0 * ROWS**0.7, rel=0.1), "Heaps' law"


def test_bounded_workers_keep_together(folder: Path) -> None:
    run = Emulated(folder, rows=8_000, mode="bounded", workers=4, servers=2, compute_s=0.05)
    finish(run, 8_000)
    workers = read_applied(run.run_dir)["worker"].tolist()[1:]  # the first record is blank
    all_there = max(workers.index(worker) for worker in range(4)) + 1  # a late worker starts at the slowest batch
    done, apart = dict.fromkeys(range(4), 0), 0
    for worker in workers[all_there : all_there + 50]:
        done[worker] += 1
        apart = max(apart, max(done.values()) - min(done.values()))
    assert min(done.values()) > 4 + 2, "without a bound, the workers would be further apart"
    assert apart <= 4 + 2, "at most the staleness and the batches in flight"
