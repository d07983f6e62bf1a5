"""Buckets are handed over because of the load of the PS, while the job trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elastichost.runs.events import (
    BalancingOff,
    BucketsMoving,
    BucketsStay,
    HandoverStarted,
    ShardMapPublished,
)
from elastichost.tuner.placement.rebalance import BOUND
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder

__all__ = ["folder"]

pytestmark = [pytest.mark.system, pytest.mark.thorough]

ROWS = 150_000


class Lopsided(Supervised):
    module = "tests.system.supervise_lopsided"


def template(access: str) -> str:
    chosen = JOB.replace("[train]\n", f'[train]\naccess = "{access}"\n')
    return chosen.replace("[resources]\n", "[resources]\nservers = 2\n")


def test_a_busy_server_gives_buckets_and_nothing_is_lost(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.015"))
    run = Lopsided(folder, template=template("served"), build=f"{folder}/slow.py:build", rows=ROWS, every_s=2)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": ROWS, "trained": ROWS, "skipped": 0, "quarantined": 0}
    (moved,) = [event for event in run.events(HandoverStarted) if "times the mean load; " in event.reason]
    before, buckets, after = re.findall(
        r"has (\S+) times the mean load; moving (\d+) buckets? reduces this to (\d\.\d+)", moved.reason
    )[0]
    assert float(before) > 1.5
    assert float(after) <= BOUND
    published = [event for event in run.events(ShardMapPublished) if event.moved == int(buckets)]
    assert len(published) == 1
    assert len(run.events(BucketsStay)) <= 3


def test_with_direct_access_nothing_is_done(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.015"))
    run = Lopsided(folder, template=template("direct"), build=f"{folder}/slow.py:build", rows=ROWS // 3)
    code, errors = run.finish()
    assert code == 0, errors
    (off,) = run.events(BalancingOff)
    assert off.reason.startswith("with direct access")
    assert run.events(BucketsStay, BucketsMoving, HandoverStarted) == []
