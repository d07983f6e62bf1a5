"""Runs whose workers have reader processes: no sample is lost or doubled by kills, and the bits are those of a run
without readers."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from elastichost.runs.events import ProcessLost, ProcessStarted
from elastichost.wire.applied import read_applied
from tests.system.journals import events_of
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder
from tests.system.test_sync import TEMPLATE, trained

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

__all__ = ["folder"]

READERS = "\n[data.input]\nreaders = 2\n[tables.default]"
WITH_READERS = JOB.replace("\n[tables.default]", READERS).replace("workers = 2", "workers = 1")


def kill_newest(run: Supervised, name: str) -> None:
    """Kills the newest incarnation of a process with SIGKILL, and waits until its successor is ready."""
    role, _, index = name.rpartition("-")
    newest = max(one.incarnation for one in run.ready() if one.name == name)
    started = [one for one in run.events(ProcessStarted) if one.process.name == name]
    os.kill(started[-1].pid, signal.SIGKILL)
    run.wait_ready(f"{role}-{index}.{newest + 1}")


def assert_each_position_once(run_dir: Path, rows: int) -> None:
    """The committed batches cover every position of every unit once."""
    applied = read_applied(run_dir)
    applied = applied[applied["samples"] > 0]
    assert int(applied["samples"].sum()) == rows
    for unit in np.unique(applied["unit"]):
        of_unit = np.sort(applied[applied["unit"] == unit], order="start")
        assert of_unit["start"].tolist() == [0, *of_unit["stop"][:-1].tolist()]


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=[pytest.mark.thorough, pytest.mark.long])])
def test_kills_of_readers_worker_and_ps_lose_and_double_nothing(folder: Path, rounds: int) -> None:
    rows = 50_000 + 100_000 * rounds
    (folder / "slow.py").write_text(SLOW_MODEL)
    run = Supervised(folder, template=WITH_READERS, build=f"{folder}/slow.py:build", rows=rows, restarts=99, every_s=2)
    run.wait_trained(1)
    for name in ("reader-0", "reader-1"):
        run.wait_ready(f"{name}.1")
    for _ in range(rounds):
        for name in ("reader-0", "reader-1", "worker-0", "reader-1", "server-0"):
            kill_newest(run, name)
    code, errors = run.finish()
    assert code == 0, errors
    result = run.result()
    assert result["samples"] == {"planned": rows, "trained": rows, "skipped": 0, "quarantined": 0}
    lost = Counter(event.process.name for event in run.lost())
    assert lost == {"reader-0": rounds, "reader-1": 2 * rounds, "worker-0": rounds, "server-0": rounds}
    assert result["torn_batches"] <= rounds, "at most one for each killed worker"
    assert_each_position_once(run.run_dir, rows)
    with sqlite3.connect(run.run_dir / "metrics.db") as database:
        found = database.execute("SELECT max(samples_per_s) FROM process WHERE role = 'reader'").fetchone()
    assert found[0] > 0


@pytest.mark.thorough
@pytest.mark.long
def test_sync_mode_has_the_same_bits_with_readers_that_die_within_a_batch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained(folder, "plain", workers=2)
    with_readers = TEMPLATE.replace("\n[tables.default]", READERS)
    assert trained(folder, "readers", with_readers, workers=2) == expected
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", "reader.batch.before_publish:9,worker.batch.before_commit:30")
    assert trained(folder, "killed", with_readers, workers=2, servers=2) == expected
    lost = [event.process.role for event in events_of(folder / "killed" / "run" / "journal.jsonl", ProcessLost)]
    assert lost.count("reader") >= 2
    assert "worker" in lost
