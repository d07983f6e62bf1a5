"""Whole runs with dynamic tables that outgrow `resources.memory`: handled in time, or ended with a typed error."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastichost.arena.host import arena_root, used_bytes
from elastichost.arena.memory_board import MemoryBoard
from elastichost.checkpoint.format import latest, read_block
from elastichost.errors import ArenaError
from elastichost.history.store import History
from elastichost.host.process_meter import ProcessMeter
from elastichost.human_readable import mib
from elastichost.plan import ProcessId
from elastichost.runs.decisions import DECISIONS_FILE, read_records
from elastichost.runs.events import (
    BucketsMoved,
    Event,
    MemoryActed,
    MemoryActionMeasured,
    MemoryBudgetLent,
    MemoryBudgetSet,
    MemoryFreed,
    MemoryMoveRefused,
    MemoryWarned,
)
from elastichost.tuner.replay import replay
from elastichost.wire.crash import VARIABLE
from tests.system.test_crash_points import assert_each_position_once
from tests.system.test_run import SLOW_MODEL, Supervised, folder

pytestmark = [pytest.mark.system]

__all__ = ["folder"]

# The processes take some 500 MB. Without a limit the rows would take 370 MB, and a checkpoint as much again.
BUDGET_MB = 1000
# Private memory of processes is only measured once a second; it cannot be refused.
ALLOWED = 1.02 * BUDGET_MB * 10**6
SAMPLES, TABLES = 96_000, 4
JOB = """
[job]
name = "memory"
seed = 7
[model]
build = "{build}"
args = {{ bottom = [16, {dim}], top = [16, 1] }}
[data]
format = "synthetic"
[data.synthetic]
rows = {rows}
test_rows = 2000
tables = 4
table_rows = 1_000_000
dense = 3
zipf = 0.2
unit_rows = 8192
[tables.default]
dim = {dim}
rows = "dynamic"
optimizer = {{ name = "adagrad" }}
[train]
batch_size = 128
mode = "{mode}"
[resources]
workers = {workers}
servers = {servers}
hosts = {hosts}
memory = "{budget}MB"
most_without_row = 1.0
[tuner]
memory = "{memory}"
{tuner}
[supervision]
hang_timeout_s = 5
"""


# The events of memory actions.
ACTIONS: tuple[type[Event], ...] = (MemoryActed, MemoryActionMeasured, MemoryMoveRefused, MemoryFreed)


def start(folder: Path, memory: str, **settings: Any) -> Supervised:
    facts = {
        "build": "elastichost.models:dlrm",
        "rows": SAMPLES,
        "dim": 128,
        "mode": "async",
        "workers": 1,
        "servers": 1,
        "hosts": 1,
        "tuner": "",
    }
    return Supervised(folder, template=JOB, **{**facts, "budget": BUDGET_MB, "memory": memory, **settings})


def arena_of() -> Path | None:
    """The arena of the test's run, when it exists and has a layout."""
    found = [path for path in arena_root().iterdir() if (path / "LAYOUT.json").exists()]
    return found[0] if found else None


def highest_use(run: Supervised) -> float:
    """Measures memory until the run ends: rows, copies for checkpoints, and private memory of the processes. Returns
    the largest value that two successive measurements during training confirm. Shared memory counts twice if a process
    ends between two readings, and before all processes are forked the fork server has it alone."""
    meter, most, last, now_s = ProcessMeter(), 0.0, 0.0, 0.0
    while run.process.poll() is None:
        signal.sigtimedwait([], 0.1)
        arena, status = arena_of(), run.status()
        if arena is None or status.get("samples_trained", 0) < SAMPLES // 10:
            continue
        now_s += 100.0
        pids = [one["pid"] for one in status["processes"] if one["pid"]]
        own = meter.measure([run.process.pid, run.fork_server(), *pids], now_s)
        with contextlib.suppress(ArenaError, OSError):  # the file is just being removed
            copies = MemoryBoard(arena, TABLES).server(0).copies
            before, last = last, used_bytes(arena) + copies + sum(usage.private_bytes for usage in own.values())
            most = max(most, min(before, last))
    return most


def test_a_job_that_grows_beyond_its_budget_trains_on(folder: Path) -> None:
    run = start(folder, "act")
    most = highest_use(run)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert run.lost() == []
    first = run.events(*ACTIONS)[0]
    assert isinstance(first, MemoryActed)
    assert first.action == "evict"
    assert first.chance > 0.05
    assert first.horizon >= 8192
    assert 0 < most <= ALLOWED
    (trained,) = {record.manifest.samples_trained for record in [latest(run.run_dir / "checkpoints")] if record}
    assert trained == SAMPLES
    assert_no_id_has_two_rows(run.run_dir)
    again = list(replay(read_records(run.run_dir / DECISIONS_FILE)))
    assert any(one.recorded.startswith("evict") for one in again if one.part == "memory")
    assert all(one.is_same for one in again)


def assert_no_id_has_two_rows(run_dir: Path) -> None:
    """Checks the newest checkpoint: ids are unique, and most rows were dropped."""
    found = latest(run_dir / "checkpoints")
    assert found is not None
    blocks = {(b.kind, b.owner, b.bucket): b for b in found.manifest.blocks}
    live = 0
    for table in range(TABLES):
        ids = []
        for bucket in range(16):
            of_bucket, seen = (read_block(found.directory, blocks[kind, table, bucket]) for kind in ("ids", "seen"))
            ids.append(of_bucket[seen > 0])
        every = np.concatenate(ids)
        assert len(np.unique(every)) == len(every) > 0
        live += len(every)
    assert live < 250_000, "most rows must have been dropped"


@pytest.mark.thorough
def test_without_the_memory_tuner_the_job_ends_with_the_reason(folder: Path) -> None:
    run = start(folder, "off")
    most = highest_use(run)
    code, errors = run.finish()
    assert code == 1
    assert errors.startswith(f"MemoryBudgetError: resources.memory allows {mib(BUDGET_MB * 10**6)}")
    for words in ("'c0' ", "private memory of the processes", "copies for checkpoints", 'tuner.memory = "act"'):
        assert words in errors
    assert run.events(*ACTIONS) == []
    assert 0.5 * BUDGET_MB * 10**6 < most <= ALLOWED  # it is measured once a second and grows fast
    assert run.result()["exit_code"] == 1


@pytest.mark.thorough
def test_a_ps_killed_within_a_round_of_dropping(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "ps.evict.midway:5")
    run = start(folder, "act")
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    (lost,) = run.lost()
    assert (lost.process, lost.code) == (ProcessId("server", 0, 1), -signal.SIGKILL)
    assert_each_position_once(run.run_dir, SAMPLES)
    assert_no_id_has_two_rows(run.run_dir)


@pytest.mark.thorough
def test_sync_mode_drops_nothing_and_warns_before_its_end(folder: Path) -> None:
    run = start(folder, "act", mode="sync", dim=512)
    code, errors = run.finish()
    assert code == 1
    assert "MemoryBudgetError: resources.memory allows" in errors
    assert run.events(*ACTIONS) == []
    warned = [event for event in run.events(MemoryWarned) if event.exceeds_in_s is not None]
    assert warned
    assert warned[0].inaction == "sync"


@pytest.mark.thorough
def test_buckets_go_to_a_host_with_room_before_rows_are_dropped(folder: Path) -> None:
    """Host 0 has the workers; both hosts have equally many rows at first."""
    samples = 120_000
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.01"))
    run = start(folder, "act", hosts=2, servers=2, rows=samples, budget=750, build=f"{folder}/slow.py:build")
    code, errors = run.finish()
    assert code == 0, errors
    first = run.events(MemoryActed, MemoryActionMeasured)[0]
    assert isinstance(first, MemoryActed)
    assert first.action == "move"
    assert run.events(BucketsMoved)
    assert run.lost() == []
    assert sorted(os.listdir(arena_root())) == []
    assert_each_position_once(run.run_dir, samples)


@pytest.mark.thorough
@pytest.mark.long
def test_what_a_run_has_learnt_is_foreseen_by_the_next_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run has enough memory, and the tuner does not act. Both runs are long enough for a measurement, because
    a run without one is not recorded in the history."""
    path = folder / "history.sqlite"
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(path))
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.03"))
    trained(folder / "first", "watch", 4000, is_foreknown=False)
    assert path.exists()
    run = trained(folder / "second", "act", BUDGET_MB, is_foreknown=True)
    with History(path) as history:
        *later, first = history.records()
    # Ids are drawn repeatedly from a million for each of four tables, so that the growth slows: beta is below one.
    assert 0.7 < np.exp(first.memory.mean["beta"]) <= 1.0
    assert np.exp(first.memory.mean["growth_bytes"]) > 500e6
    assert all("growth_bytes" not in one.memory.mean for one in later), "a run that dropped rows must not record growth"
    first_action = run.events(*ACTIONS)[0]
    assert isinstance(first_action, MemoryActed)
    assert first_action.action == "evict"
    assert all(one.is_same for one in replay(read_records(run.run_dir / DECISIONS_FILE)))


@pytest.mark.thorough
def test_what_a_run_has_learnt_that_died_of_it_is_foreseen_by_the_next_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run only watches, and fails when its budget is exceeded, before its speed was measured. It is slow
    enough to live for some seconds: growth is fitted to several readings, one a second."""
    path = folder / "history.sqlite"
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(path))
    plan = 'mode = "watch"\nfirst_plan = { workers = 1 }'
    (folder / "first").mkdir()
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.004"))
    more = {"rows": 2 * SAMPLES, "budget": 1300, "build": f"{folder}/slow.py:build"}
    run = start(folder / "first", "watch", workers="[1, 2]", tuner=plan, **more)
    code, errors = run.finish()
    assert code == 1 and "MemoryBudgetError" in errors
    with History(path) as history:
        (failed,) = history.records()
    assert not failed.ended_well and not failed.is_measured and not failed.parameters.mean
    assert 0.7 < np.exp(failed.memory.mean["beta"]) <= 1.0
    assert failed.memory.sd["beta"] > 0.05 and "growth_bytes" not in failed.memory.mean
    (folder / "second").mkdir()
    again = start(folder / "second", "act", workers="[1, 2]", tuner=plan, **more)
    code, errors = again.finish()
    assert code == 0, errors
    told = again.events(MemoryBudgetSet, MemoryBudgetLent)[0]
    assert isinstance(told, MemoryBudgetSet)
    assert told.forecast_bytes is not None


def trained(folder: Path, memory: str, budget: int, *, is_foreknown: bool) -> Supervised:
    """A run with automatic size, so that it is recorded in the history."""
    folder.mkdir()
    plan = 'mode = "watch"\nfirst_plan = { workers = 1 }'
    run = start(folder, memory, workers="[1, 2]", budget=budget, tuner=plan, build=f"{folder.parent}/slow.py:build")
    code, errors = run.finish()
    assert code == 0, errors
    (told,) = run.events(MemoryBudgetSet, MemoryBudgetLent)
    assert isinstance(told, MemoryBudgetSet)
    assert told.budget_bytes == budget * 10**6
    assert (told.forecast_bytes is not None) == is_foreknown
    return run
