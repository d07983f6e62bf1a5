"""Every named crash point, driven once: the process dies exactly there, and nothing is lost or trained twice."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from elastichost.ps.applied_log import read_applied
from tests.system.test_run import JOB, ROOT, Supervised, folder

pytestmark = pytest.mark.system

__all__ = ["folder"]

# A run kills its workers at one point and its PS at another; both in their first life. `served`, `bounded`: so that
# each way of access and each mode meets deaths at points where it matters.
RUNS = {
    "worker.batch.begin,ps.data.before_apply:40": 'access = "served"\nmode = "bounded"',
    "worker.batch.before_push:20,ps.data.before_reply:40": 'access = "served"',
    "worker.batch.before_commit:20,ps.snapshot.after_copy": 'access = "served"',
    "worker.batch.after_commit:30,ps.data.before_reply": 'access = "direct"\nmode = "bounded"',
    "worker.batch.before_commit,ps.snapshot.after_copy:2": 'access = "direct"',
}
SAMPLES = 300_000


def test_every_crash_point_of_the_code_is_driven() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "elastichost").rglob("*.py"))
    named = set(re.findall(r'crash_point\("([a-z_.]+)"\)', source))
    assert named == {point.partition(":")[0] for run in RUNS for point in run.split(",")}


@pytest.mark.parametrize("crash_at", RUNS)
def test_a_death_at_the_point_loses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, crash_at: str) -> None:
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", crash_at)
    train = f"[train]\n{RUNS[crash_at]}\n"
    run = Supervised(folder, template=JOB.replace("[train]\n", train), rows=SAMPLES, every_s=0.5)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": SAMPLES, "trained": SAMPLES, "skipped": 0, "quarantined": 0}
    lost = {(event.process, event.data["life"], event.data["code"]) for event in run.events("process_lost")}
    assert lost == {(name, 1, -9) for name in ("worker-0", "worker-1", "server-0")}
    assert_each_position_once(run.run_dir)


def assert_each_position_once(run_dir: Path) -> None:
    applied = read_applied(run_dir)
    applied = np.sort(applied[applied["samples"] > 0], order=("epoch", "unit", "start"))
    assert int(applied["samples"].sum()) == SAMPLES
    for unit in np.unique(applied["unit"]):
        of_unit = applied[applied["unit"] == unit]
        assert of_unit["start"].tolist() == [0, *of_unit["stop"][:-1].tolist()]
