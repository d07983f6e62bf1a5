"""The tuner's loop, over a real arena: a bug of the tuner ends no run, failed plan changes are taken back, and time in
which the supervisor was stopped is not measured."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.history.features import Estimates, JobFeatures, JobRecord
from elastichost.history.store import History
from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.runs.decisions import Recorder, read_records
from elastichost.runs.events import HistoryUnavailable, PlanOrigin, TunerDecided, TunerFailed
from elastichost.specs import DenseSpec, ModelSpec, TableSpec
from elastichost.supervisor.autoscale import tuner_loop as tuning
from elastichost.supervisor.autoscale.tuner_loop import AutoTuner
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import State
from elastichost.tuner.cluster.proposals import Proposal
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.placement.resize import resized_plan
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.decision import Kind
from elastichost.tuner.policy.policy import Decision, TunerSettings, TunerState, measured
from elastichost.tuner.records import TunerLooked
from tests.supervisor.noted import Noted

MODEL = ModelSpec((TableSpec("small", 0, ("f",), "int", rows=100),), (), DenseSpec((), 8, 8), 0, 1)
FEATURES = JobFeatures("a:build")
SETTINGS = TunerSettings(Workload(100), Bounds(Configuration(1, 1), Configuration(4, 1)))


class Scene:
    """A run of one worker and one PS, as the tuner sees it. noted: its events."""

    def __init__(self, folder: Path, mode: str = "act") -> None:
        self.arena = Arena.create(folder / "arena", plan_layout(MODEL, 7, 1 << 28))
        self.followed: list[tuple[float, int]] = []  # plans that were applied: (time in seconds, number of PS)
        self.causes: list[PlanOrigin] = []  # of these plans
        self.path, self.noted = folder / "decisions.jsonl", Noted()
        self.recorder = Recorder(self.path)
        specs = (ProcessSpec("worker", 0, (0,), 1), ProcessSpec("server", 0, (0,), 1))
        run: Any = SimpleNamespace(
            job=SimpleNamespace(train=SimpleNamespace(mode="async"), tuner=SimpleNamespace(mode=mode)),
            plan=Plan(specs, "direct", "a test"),
            fleet=Fleet(),
            recorder=self.recorder,
            **self.noted.attributes,
            last_decision="",
            directory=SimpleNamespace(identity=SimpleNamespace(run_id="run-1")),
            shares_host=False,
            proposal=None,
            is_measured=True,
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
        self.tuner = AutoTuner(run, components, changes, SETTINGS, FEATURES)
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


@pytest.fixture
def under_dispatcher(tmp_path: Path) -> Iterator[Scene]:
    """A scene of a run under the dispatcher."""
    (tmp_path / "arena").mkdir()
    made = Scene(tmp_path, "propose")
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
    assert scene.tuner.record(ended_well=True) is None


def test_a_bug_of_the_tuner_at_the_end_of_the_run_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no end of steps")

    monkeypatch.setattr(tuning, "record_of", fail)
    assert scene.tuner.record(ended_well=True) is None
    assert scene.noted.events == [TunerFailed("RuntimeError", "no end of steps")]


# --- the history ------------------------------------------------------------------------------------------------------


def decides(scene: Scene, monkeypatch: pytest.MonkeyPatch, now_s: float, *, speed: float = 1000.0) -> None:
    """The tuner has measured one configuration, and decides to keep it."""
    seen = Observation(Configuration(1, 1), speed, 0.02, 20.0, at_s=now_s)
    state = TunerState(observations=(seen,))
    decision = Decision("settle", seen.configuration, "a test", measured(seen))
    monkeypatch.setattr(tuning, "advance", lambda *_: (state, decision))
    scene.tuner.look(now_s)


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "history"
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(path))
    return path


def records(path: Path) -> tuple[JobRecord, ...]:
    with History(path) as history:
        return history.records()


def test_a_run_that_trains_tells_others_what_it_has_measured(
    scene: Scene, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.tuner.look(0.5)
    assert not history.exists(), "it has decided nothing"
    for now_s, speed in ((1.0, 1000.0), (2.0, 1500.0)):
        decides(scene, monkeypatch, now_s, speed=speed)
        (record,) = records(history)
        assert (record.run, record.samples_per_s, record.features) == ("run-1", speed, FEATURES)
    scene.tuner.remember(ended_well=True)
    assert len(records(history)) == 1, "the record of the end takes the place of the others"


def test_a_run_that_fails_takes_back_what_it_told(scene: Scene, history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decides(scene, monkeypatch, 1.0)
    scene.tuner.remember(has_failed=True)
    assert records(history) == ()


def test_a_history_that_is_busy_does_not_hold_up_training(
    scene: Scene, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with History(history):
        other = sqlite3.connect(history, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        decides(scene, monkeypatch, 1.0)
        other.execute("ROLLBACK")
        other.close()
    assert scene.noted.of(HistoryUnavailable) == [] and records(history) == ()
    decides(scene, monkeypatch, 2.0)
    assert len(records(history)) == 1


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


# --- under the dispatcher ---------------------------------------------------------------------------------------------


def test_a_run_under_the_dispatcher_proposes_and_changes_nothing_itself(under_dispatcher: Scene) -> None:
    scene = under_dispatcher
    scene.wants(2, 100.0)
    assert scene.followed == []
    assert scene.run.proposal == Proposal(Configuration(1, 1), Configuration(1, 2), "try", "a test")
    (told,) = scene.noted.of(TunerDecided)
    assert told.is_proposal and not told.only_watches
    assert scene.run.last_decision == "tuner proposes: a test"
    scene.tuner.look(101.0)
    assert scene.run.proposal is not None, "it stays open until it is granted or stale"


def test_a_proposal_is_withdrawn_when_the_plan_has_changed(under_dispatcher: Scene) -> None:
    scene = under_dispatcher
    scene.wants(2, 100.0)
    scene.run.plan = resized_plan(scene.run.plan, "the dispatcher", servers=3)
    scene.tuner.look(101.0)
    assert scene.run.proposal is None


def test_a_decision_to_stay_withdraws_the_proposal(under_dispatcher: Scene) -> None:
    scene = under_dispatcher
    scene.wants(2, 100.0)
    scene.wants(1, 101.0, "settle")
    assert scene.run.proposal is None
    assert [event.is_proposal for event in scene.noted.of(TunerDecided)] == [True, False]


def test_after_a_size_that_a_person_requested_nothing_is_proposed(under_dispatcher: Scene) -> None:
    scene = under_dispatcher
    scene.wants(2, 100.0)
    scene.changes.plans.is_asked = True
    scene.tuner.look(101.0)
    assert scene.run.proposal is None
    scene.wants(2, 102.0)
    assert scene.run.proposal is None
    assert [event.only_watches for event in scene.noted.of(TunerDecided)] == [False, True]


def test_a_granted_size_whose_process_fails_is_taken_back_and_not_proposed_at_once(under_dispatcher: Scene) -> None:
    scene = under_dispatcher
    scene.wants(2, 100.0)
    before, after = scene.run.plan, resized_plan(scene.run.plan, "granted", servers=2)
    scene.apply(after, 100.5)
    scene.tuner.granted(before, after, 100.5)
    process = ProcessId("server", 1, 1)
    scene.run.fleet.request(process, ProcessSpec("server", 1, (0,), 1), 100.5).state = State.FAILED
    scene.tuner.take_back(101.0)
    assert scene.followed == [(100.5, 2), (101.0, 1)]
    scene.changes.is_settled = True
    for at_s in (102.0, 130.0):
        scene.wants(2, at_s)
        assert scene.run.proposal is None
    scene.wants(2, 131.5)
    assert scene.run.proposal is not None


def test_a_plan_counts_as_measured_after_its_first_block(
    under_dispatcher: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = under_dispatcher
    scene.tuner.look(10.0)
    assert not scene.run.is_measured
    state, here = scene.tuner.state, Configuration(1, 1)
    profiled = msgspec.structs.replace(state, profile=msgspec.structs.replace(state.profile, configuration=here))
    done = msgspec.structs.replace(profiled, observations=(Observation(here, 1.0, 0.1),))
    steps = iter(((profiled, None), (done, None), (done, None), (done, None)))
    monkeypatch.setattr(tuning, "advance", lambda *_: next(steps))
    monkeypatch.setattr(tuning, "age_of", lambda _: 0)
    scene.tuner.look(11.0)
    assert not scene.run.is_measured
    scene.tuner.look(12.0)
    assert scene.run.is_measured
    scene.run.plan = resized_plan(scene.run.plan, "the dispatcher", servers=3)
    scene.tuner.look(13.0)
    assert not scene.run.is_measured


def test_a_tuner_that_failed_proposes_nothing_and_holds_nothing_up(
    under_dispatcher: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no end of steps")

    scene = under_dispatcher
    scene.wants(2, 100.0)
    scene.run.is_measured = False
    monkeypatch.setattr(tuning, "advance", fail)
    scene.tuner.look(101.0)
    assert (scene.run.proposal, scene.run.is_measured) == (None, True)
