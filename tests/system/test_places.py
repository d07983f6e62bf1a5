"""Mixed access: workers use rows of their own host in its arena, and rows of other hosts by messages.

The hosts are emulated, so all workers are on host 0; `test_machines` has workers on other hosts.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from elastichost.chaos.hand_overs import check_hand_overs, read_audit
from elastichost.ps.audit import AUDIT_VARIABLE
from elastichost.runs.events import BatchTorn, BucketsMoved, MoveAborted, PlanChanged
from elastichost.wire.crash import VARIABLE
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder
from tests.system.test_scale import assert_trained_once, scale

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

__all__ = ["folder"]

SAMPLES = 200_000
HOSTS = JOB.replace("workers = 2", "workers = 2\nhosts = 2\nservers = {servers}").replace(
    "[train]\n", '[train]\nmode = "{mode}"\naccess = "{access}"\n'
)


def start(folder: Path, batch_s: float = 0.001, **settings: Any) -> Supervised:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", str(batch_s)))
    facts = {"build": f"{folder}/slow.py:build", "rows": SAMPLES, "servers": 2, "mode": "async", "access": "auto"}
    return Supervised(folder, template=HOSTS, **{**facts, **settings})


def assert_done(run: Supervised, access: str = "mixed") -> None:
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    assert_trained_once(run)
    assert {event.access for event in run.events(PlanChanged)} == {access}


def torn(run: Supervised) -> dict[str, int]:
    """The torn batches of each incarnation; checks that no others were counted."""
    found = {str(event.process): event.batches for event in run.events(BatchTorn)}
    assert run.result()["torn_batches"] == sum(found.values())
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["async", "bounded"])
def test_learns_as_well_as_with_served_rows(folder: Path, mode: str) -> None:
    scores = {}
    for access in ("auto", "served"):
        place = folder / access
        place.mkdir()
        run = start(place, mode=mode, access=access)
        assert_done(run, "mixed" if access == "auto" else "served")
        assert run.result()["torn_batches"] == 0
        scores[access] = run.result()["test"]["auc"]
    assert scores["auto"] > 0.6
    assert scores["auto"] == pytest.approx(scores["served"], abs=0.02)


@pytest.mark.thorough
def test_buckets_move_out_and_in_under_load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were used in place before and after a migration keep their bits, and no batch is torn."""
    monkeypatch.setenv(AUDIT_VARIABLE, "1")
    run = start(folder, 0.01, servers=1, mode="bounded")  # slow enough for both migrations
    run.wait_trained(1)
    scale(run, servers=2)
    scale(run, servers=1)
    assert_done(run)
    verdict = check_hand_overs(read_audit(run.run_dir), "served")
    assert verdict.holds, verdict
    assert [event.buckets for event in run.events(BucketsMoved)] == [32, 32]
    assert run.events(MoveAborted) == [] and torn(run) == {}
    assert run.result()["test"]["auc"] > 0.6


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("point", "batches"),
    [("worker.batch.before_push:20", 1), ("worker.batch.before_commit:20", 1), ("worker.batch.posted:20", None)],
)
def test_a_killed_worker_tears_the_batch_it_computes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: str, batches: int | None
) -> None:
    """The worker has changed rows of its host; its pushes to other hosts are dropped. No other process ends."""
    monkeypatch.setenv(VARIABLE, point)
    run = start(folder)
    assert_done(run)
    expected = {} if batches is None else dict.fromkeys(("worker-0.1", "worker-1.1"), batches)
    assert torn(run) == expected
    assert len(run.lost()) == len(expected)


def test_kills_of_every_process_lose_nothing(folder: Path) -> None:
    run = start(folder, every_s=1.5)
    run.wait_trained(1)
    for name in ("worker-0", "server-1", "worker-1", "server-0"):
        os.kill(run.pid(name), signal.SIGKILL)
        run.wait_ready(f"{name}.2")
    assert_done(run)
    assert sorted(event.process.name for event in run.lost()) == ["server-0", "server-1", "worker-0", "worker-1"]
    assert all(batches == 1 for batches in torn(run).values())
    assert run.result()["test"]["auc"] > 0.6
