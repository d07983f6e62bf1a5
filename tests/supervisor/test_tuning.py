"""The loop around the tuner, over a real arena: a fault of the tuner ends no run, and a supervisor that stood still
measures nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.job_features import JobFeatures
from elastichost.plan import Plan, ProcessSpec
from elastichost.specs import DenseSpec, ModelSpec, TableSpec
from elastichost.supervisor import tuning
from elastichost.supervisor.observed import Fleet
from elastichost.supervisor.recording import Recorder, read_records
from elastichost.supervisor.tuning import AutoTuner
from elastichost.tuner.candidates import Bounds
from elastichost.tuner.facts import Configuration, Workload
from elastichost.tuner.policy import TunerSettings
from elastichost.tuner.records import TunerLooked

MODEL = ModelSpec((TableSpec("small", 0, ("f",), "int", rows=100),), (), DenseSpec((), 8, 8), 0, 1)
SETTINGS = TunerSettings(Workload(100), Bounds(Configuration(1, 1), Configuration(4, 1)))


class Scene:
    """A run of one worker and one PS, as the tuner sees it. `said`: (kind, text) of what was noted."""

    def __init__(self, folder: Path) -> None:
        self.arena = Arena.create(folder / "arena", plan_layout(MODEL, 7, 1 << 28))
        self.path, self.said = folder / "decisions.jsonl", list[tuple[str, str]]()
        self.recorder = Recorder(self.path)
        specs = (ProcessSpec("worker", 0, (0,), 1), ProcessSpec("server", 0, (0,), 1))
        run: Any = SimpleNamespace(
            job=SimpleNamespace(train=SimpleNamespace(mode="async"), tuner=SimpleNamespace(mode="act")),
            plan=Plan(specs, "direct", "a test"),
            fleet=Fleet(),
            recorder=self.recorder,
            note=lambda kind, text, **_: self.said.append((kind, text)),
        )
        idle = SimpleNamespace(is_open=False)
        ledger = SimpleNamespace(samples_planned=1000, samples_accounted=0)
        parts: Any = SimpleNamespace(
            arena=self.arena,
            checkpointer=idle,
            judge=idle,
            training=SimpleNamespace(ledger=ledger, has_work=lambda process: True),
            balancer=SimpleNamespace(hot_share=None),
            memory=SimpleNamespace(most_workers=None),
        )
        commander: Any = SimpleNamespace(was_asked=False, is_settled=True, take_moved_s=lambda: None)
        self.tuner = AutoTuner(run, parts, commander, SETTINGS)
        self.tuner._importing.join()

    def looks(self) -> list[TunerLooked]:
        return [one for one in read_records(self.path) if isinstance(one, TunerLooked)]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "arena").mkdir()
    made = Scene(tmp_path)
    yield made
    made.recorder.close()
    made.arena.close()


@pytest.mark.parametrize("fault", [RuntimeError("no end of steps"), KeyError("x"), ImportError("no such library")])
def test_a_fault_of_the_tuner_is_told_once_and_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(tuning, "advance", fail)
    for second in range(5):
        scene.tuner.look(float(second))
    assert [kind for kind, _ in scene.said] == ["warning"]
    assert type(fault).__name__ in scene.said[0][1]
    assert len(scene.looks()) == 1
    assert scene.tuner.record(JobFeatures("a:build"), ended_well=True) is None


def test_a_fault_at_the_end_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no end of steps")

    monkeypatch.setattr(tuning, "record_of", fail)
    assert scene.tuner.record(JobFeatures("a:build"), ended_well=True) is None
    assert "gives up" in scene.said[0][1]


def test_the_time_in_which_the_supervisor_stood_still_is_not_measured(scene: Scene) -> None:
    for at_s in (10.0, 10.5, 11.0, 41.0, 41.5):
        scene.tuner.look(at_s)
    assert [one.look.is_steady for one in scene.looks()] == [False, True, True, False, True]
