"""The tuner's loop, over a real arena: a bug of the tuner ends no run, failed plan changes are taken back, and time in
which the supervisor was stopped is not measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.history.features import Estimates, JobFeatures
from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.runs.decisions import Recorder, read_records
from elastichost.runs.events import PlanOrigin, TunerFailed
from elastichost.specs import DenseSpec, ModelSpec, TableSpec
from elastichost.supervisor.autoscale import tuner_loop as tuning
from elastichost.supervisor.autoscale.tuner_loop import AutoTuner
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import State
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.placement.resize import resized_plan
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.decision import Kind
from elastichost.tuner.policy.policy import Decision, TunerSettings, measured
from elastichost.tuner.records import TunerLooked
from tests.supervisor.noted import Noted

MODEL = ModelSpec((TableSpec("small", 0, ("f",), "int", rows=100),), (), DenseSpec((), 8, 8), 0, 1)
SETTINGS = TunerSettings(Workload(100), Bounds(Configuration(1, 1), Configuration(4, 1)))


class Scene:
    """A run of one worker and one PS, as the tuner sees it. noted: its events."""

    def __init__(self, folder: Path) -> None:
        self.arena = Arena.create(folder / "arena", plan_layout(MODEL, 7, 1 << 28))
        self.followed: list[tuple[float, int]] = []  # plans that were applied: (time in seconds, number of PS)
        self.causes: list[PlanOrigin] = []  # of these plans
        self.path, self.noted = folder / "decisions.jsonl", Noted()
        self.recorder = Recorder(self.path)
        specs = (ProcessSpec("worker", 0, (0,), 1), ProcessSpec("server", 0, (0,), 1))
        run: Any = SimpleNamespace(
            job=SimpleNamespace(train=SimpleNamespace(mode="async"), tuner=SimpleNamespace(mode="act")),
            plan=Plan(specs, "direct", "a test"),
            fleet=Fleet(),
            recorder=self.recorder,
            **self.noted.attributes,
            last_decision="",
            shares_host=False,
            cpu_elsewhere_s=lambda record: None,
        )
        idle = SimpleNamespace(is_open=False)
        ledger = SimpleNamespace(samples_planned=1000, samples_accounted=0)
        components: Any = SimpleNamespace(
            arena=self.arena,
            checkpoints=idle,
            evaluations=idle,
            leases=SimpleNamespace(ledger=ledger, has_work=lambda process: True),
            rebalancer=SimpleNamespace(hot_share=None),
            memory=SimpleNamespace(most_workers=None, learnt=lambda is_whole: Estimates()),
            sharding=SimpleNamespace(full_s=-math.inf),
        )
        changes: Any = SimpleNamespace(
            plans=SimpleNamespace(
                is_asked=False,
                resized=lambda command, reason: (resized_plan(run.plan, reason, servers=command.servers), ()),
            ),
            is_settled=True,
            take_moved_s=lambda: None,
            apply=self.apply,
        )
        self.run, self.components, self.changes = run, components, changes
        self.tuner = AutoTuner(run, components, changes, SETTINGS)
        self.tuner._importing.join()

    def apply(self, plan: Plan, now_s: float, cause: PlanOrigin = "") -> None:
        self.causes.append(cause)
        self.run.plan, self.changes.is_settled = plan, False
        self.followed.append((now_s, len(plan.servers)))

    def wants(self, servers: int, now_s: float, kind: Kind = "try") -> None:
        """The tuner decides for a plan with this number of PS."""
        wanted = Configuration(1, servers)
        self.tuner._follow(Decision(kind, wanted, "a test", measured(Observation(wanted, 1.0, 0.1))), now_s)

    def looks(self) -> list[TunerLooked]:
        """The recorded looks of the tuner."""
        return [one for one in read_records(self.path) if isinstance(one, TunerLooked)]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A scene; its files are closed at the end."""
    (tmp_path / "arena").mkdir()
    made = Scene(tmp_path)
    yield made
    made.recorder.close()
    made.arena.close()


@pytest.mark.parametrize("fault", [RuntimeError("no end of steps"), KeyError("x"), ImportError("no such library")])
def test_a_bug_of_the_tuner_is_reported_once_and_the_run_goes_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(tuning, "advance", fail)
    for second in range(5):
        scene.tuner.look(float(second))
    assert scene.noted.events == [TunerFailed(type(fault).__name__, str(fault))]
    assert len(scene.looks()) == 1
    assert scene.tuner.record(JobFeatures("a:build"), ended_well=True) is None


def test_a_bug_of_the_tuner_at_the_end_of_the_run_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no end of steps")

    monkeypatch.setattr(tuning, "record_of", fail)
    assert scene.tuner.record(JobFeatures("a:build"), ended_well=True) is None
    assert scene.noted.events == [TunerFailed("RuntimeError", "no end of steps")]


def test_time_in_which_the_supervisor_was_stopped_is_not_measured(scene: Scene) -> None:
    for at_s in (10.0, 10.5, 11.0, 41.0, 41.5):
        scene.tuner.look(at_s)
    assert [one.look.is_steady for one in scene.looks()] == [False, True, True, False, True]


def test_a_plan_with_more_ps_than_memory_allows_is_taken_back_and_tried_again_later(scene: Scene) -> None:
    now_s = 100.0
    for wait_s in (30.0, 60.0):
        scene.changes.is_settled = True
        scene.wants(2, now_s)
        scene.components.sharding.full_s = now_s + 1.0
        scene.tuner.take_back(now_s + 2.0)
        assert scene.followed[-2:] == [(now_s, 2), (now_s + 2.0, 1)]
        assert f"and 2 PS are not tried again for {wait_s:.0f} s" in scene.run.plan.reason
        scene.changes.is_settled = True
        scene.tuner.take_back(now_s + 3.0)
        events = len(scene.noted.events)
        for servers in (2, 3):
            scene.wants(servers, now_s + 1.0 + wait_s)
        assert len(scene.noted.events) == events and scene.followed[-1][1] == 1
        now_s += 2.0 + wait_s


def test_a_ps_that_ends_before_it_works_is_not_requested_again_at_once(scene: Scene) -> None:
    scene.wants(2, 100.0)
    process = ProcessId("server", 1, 1)
    scene.run.fleet.request(process, ProcessSpec("server", 1, (0,), 1), 100.0).state = State.FAILED
    scene.tuner.take_back(101.0)
    assert "server-1.1 ended before the change was done" in scene.run.plan.reason
    scene.changes.is_settled = True
    for at_s in (102.0, 130.0, 131.5):
        scene.wants(2, at_s)
    assert scene.followed == [(100.0, 2), (101.0, 1), (131.5, 2)]


def test_a_plan_that_was_reached_is_not_taken_back(scene: Scene) -> None:
    scene.wants(2, 100.0)
    scene.tuner.take_back(101.0)
    scene.changes.is_settled = True
    scene.tuner.take_back(102.0)
    scene.components.sharding.full_s = 103.0  # another move lacked memory
    scene.tuner.take_back(104.0)
    assert scene.followed == [(100.0, 2)]


def test_a_trial_plan_is_marked_as_a_trial(scene: Scene) -> None:
    """A resumed run does not begin with a plan that was only a trial."""
    scene.wants(2, 100.0)
    scene.changes.is_settled = True
    scene.wants(3, 110.0, "move")
    assert scene.causes == ["trial", ""]
