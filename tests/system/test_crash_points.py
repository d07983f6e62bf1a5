"""Every named crash point: the process dies exactly there, and no sample is lost or trained twice.

The points come from the registry. A point is tested by the ways of the first prefix that matches its name.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from elastichost.wire.applied import read_applied
from elastichost.wire.crash import POINTS, VARIABLE, CrashPoint
from tests.system.gpu_runs import POINTS_OF_MODEL
from tests.system.test_moves import POINTS_OF_PS, POINTS_OF_SUPERVISOR
from tests.system.test_run import JOB, LIMIT_S, ROOT, Supervised, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough]

__all__ = ["folder"]

DIRECT, SERVED = 'access = "direct"', 'access = "served"'
ROLES = {"worker": "worker", "reader": "reader", "ps": "server", "supervisor": "supervisor"}


@dataclass(frozen=True, slots=True)
class Way:
    """A run that reaches a point. train: lines of `[train]`. count: the process is killed when it passes the
    point for the `count`th time. scale: a command to the run while it trains. samples: length of the run. tables: lines
    of `[tables.default]`. readers: of each worker."""

    train: str
    count: int = 1
    scale: str = ""
    samples: int = 150_000
    tables: str = ""
    readers: int = 0


# By prefix; the first match counts. Where access or mode changes the effect of a death, both are tested.
WAYS: dict[str, tuple[Way, ...]] = {
    "worker.batch.before_commit": (Way(f"{DIRECT}\nmode = 'bounded'", 20), Way(SERVED, 20)),
    "worker.batch.posted": (Way(DIRECT, 20),),
    "reader.": (Way(DIRECT, 20, readers=1), Way(SERVED, 20, readers=2)),
    "worker.": (Way(DIRECT, 20), Way(f"{SERVED}\nmode = 'bounded'", 1)),
    "ps.data.": (Way(f"{DIRECT}\nmode = 'bounded'", 1), Way(SERVED, 40)),
    "ps.evict.": (
        Way(DIRECT, 20, tables="evict_after_samples = 20_000"),
        Way(SERVED, 20, tables="evict_after_samples = 20_000"),
    ),
    "ps.snapshot.": (Way(DIRECT, 2), Way(SERVED, 1)),
    "ps.handover.": (Way(SERVED, 1, "servers=2", samples=400_000),),
    "ps.step.": (Way("mode = 'sync'", 20, samples=20_000),),
    "ps.": (Way(SERVED, 1), Way(f"{SERVED}\nmode = 'bounded'", 40)),
    "supervisor.": (Way(DIRECT, 40),),
}

# Points that no run of these reaches: `test_moves` has several hosts, `test_model_on_gpu` the model in memory of a GPU.
ELSEWHERE = ("worker.model.", "ps.move.", "supervisor.move.")


def ways() -> Iterator[tuple[CrashPoint, Way]]:
    """Every point that one host without a GPU reaches, with each of its ways."""
    for point in POINTS:
        if point.name.startswith(ELSEWHERE):
            continue
        fitting = next((ways for prefix, ways in WAYS.items() if point.name.startswith(prefix)), ())
        assert fitting, f"no way is defined for {point.name}"
        for way in fitting:
            yield point, way


CASES = [
    pytest.param(point, way, id=f"{point.name}:{way.count} {way.train.replace(chr(10), ', ')}") for point, way in ways()
]


@pytest.mark.parametrize(("point", "way"), CASES)
def test_a_death_at_the_point_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: CrashPoint, way: Way
) -> None:
    monkeypatch.setenv(VARIABLE, f"{point.name}:{way.count}")
    template = JOB.replace("[train]\n", f"[train]\n{way.train}\n")
    template = template.replace(
        "[tables.default]\n", f"[data.input]\nreaders = {way.readers}\n[tables.default]\n{way.tables}\n"
    )
    settings = {"template": template, "rows": way.samples, "every_s": 0.5}
    run = Supervised(folder, **settings)
    if way.scale:
        run.wait_trained(1)
        scale(run.run_dir, way.scale)
    code, errors = run.finish()
    if point.role == "supervisor":
        assert code == -signal.SIGKILL
        run = Supervised(folder, resume=True, **settings)
        code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": way.samples, "trained": way.samples, "skipped": 0, "quarantined": 0}
    assert_died_there(run, point)
    killed = len(run.lost())
    if point.role != "supervisor":  # its workers die with it, within their batches
        is_torn = point.role == "worker" and point.name != "worker.batch.begin" and DIRECT in way.train
        assert run.result()["torn_batches"] <= (killed if is_torn else 0)
    if point.name == "worker.batch.posted":
        assert run.result()["torn_batches"] == 0, "a released batch must be committed"
    assert_each_position_once(run.run_dir, way.samples)


def scale(run_dir: Path, what: str) -> None:
    command = [sys.executable, "-m", "elastichost", "scale", str(run_dir), what]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr


def assert_died_there(run: Supervised, point: CrashPoint) -> None:
    """Checks that first incarnations of the point's role were killed, and no other process."""
    lost = run.lost()
    role = ROLES[point.role]
    assert bool(lost) == (role != "supervisor"), lost
    assert {event.process.role for event in lost} <= {role}
    assert {(event.process.incarnation, event.code) for event in lost} <= {(1, -signal.SIGKILL)}


def assert_each_position_once(run_dir: Path, samples: int) -> None:
    """Checks that the committed ranges of every unit join without overlap or gap."""
    applied = read_applied(run_dir)
    applied = np.sort(applied[applied["samples"] > 0], order=("epoch", "unit", "start"))
    assert int(applied["samples"].sum()) == samples
    for unit in np.unique(applied["unit"]):
        of_unit = applied[applied["unit"] == unit]
        assert of_unit["start"].tolist() == [0, *of_unit["stop"][:-1].tolist()]


def test_the_other_points_are_driven_by_runs_that_reach_them() -> None:
    assert [point.name for point in POINTS if point.name.startswith(ELSEWHERE)] == [
        *POINTS_OF_MODEL,
        *POINTS_OF_PS,
        *POINTS_OF_SUPERVISOR,
    ]


@pytest.mark.parametrize("verb", [("run",), ("run", "--dry-run")])
def test_a_point_that_does_not_exist_ends_a_run_before_it_starts(folder: Path, verb: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "elastichost", verb[0], "examples/synthetic.toml", *verb[1:]]
    command += ["--run-dir", str(folder / "run")]
    environment = {**os.environ, VARIABLE: "ps.data.befor_apply:3"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert 'did you mean "ps.data.before_apply"' in done.stderr
    assert not (folder / "run").exists()
