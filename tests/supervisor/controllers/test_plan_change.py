"""A plan change is observed until its end and journalled once, whatever its cause."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.runs.events import PlanReached
from elastichost.supervisor.controllers.plan_change import PlanChangeController
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from tests.arena.conftest import build_model
from tests.supervisor.noted import Noted


class Stage:
    """An arena with a dense part that workers commit to, and a fleet that follows the plan on request."""

    def __init__(self, folder: Path) -> None:
        self.arena = Arena.create(folder, plan_layout(build_model(), 7, 1 << 28))
        self.dense = DenseStore(self.arena)
        self.dense.load(np.zeros(self.arena.model.dense.elements, np.float32), None, 1, 0, 0)
        self.noted, self.fleet = Noted(), Fleet()
        self.run: Any = SimpleNamespace(
            plan=Plan((), "direct", "nothing"),
            fleet=self.fleet,
            job=SimpleNamespace(train=SimpleNamespace(mode="async")),
            **self.noted.attributes,
        )
        self.applied: list[Plan] = []
        plans: Any = SimpleNamespace(apply=self.apply)
        self.sharding: Any = SimpleNamespace(
            was_published=True, take_moves=list, holdings=SimpleNamespace(is_handed_over=True)
        )
        self.changes = PlanChangeController(self.run, plans, self.arena, self.sharding)

    def apply(self, plan: Plan, origin: str = "") -> None:
        self.run.plan = plan
        self.applied.append(plan)

    def start(self, spec: ProcessSpec, incarnation: int = 1) -> ProcessId:
        """Adds a process that is ready."""
        process = ProcessId(spec.role, spec.index, incarnation)
        record = self.fleet.request(process, spec, 0.0)
        for event in (LifecycleEvent.SPAWNED, LifecycleEvent.HELLO, LifecycleEvent.READY):
            self.fleet.apply(record, event, 0.0)
        return process

    def commit(self, worker: ProcessId, sequence: int) -> None:
        gradient = np.zeros(self.arena.model.dense.elements, np.float32)
        self.dense.apply_gradient(
            gradient,
            DenseOptimizerSpec("sgd", 0.1),
            1.0,
            worker=worker.index,
            incarnation=worker.incarnation,
            sequence=sequence,
            lease_id=0,
            stop=128 * sequence,
            samples=128,
            skipped=0,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage; its arena is closed at the end."""
    (tmp_path / "arena").mkdir()
    made = Stage(tmp_path / "arena")
    yield made
    made.arena.close()


WORKER = ProcessSpec("worker", 0, (0,), 1)
SERVER = ProcessSpec("server", 0, (1,), 1)
PLAN = Plan((WORKER, SERVER), "direct", "scale workers=1")


def test_a_change_is_over_when_the_plan_is_reached_and_every_new_worker_has_trained(stage: Stage) -> None:
    changes = stage.changes
    changes.apply(PLAN, 10.0)
    assert changes.number == 1 and changes.is_under_way and not changes.is_settled
    changes.sample(10.1)
    assert changes.observe(10.1) is None, "no process runs yet"
    stage.start(SERVER)
    worker = stage.start(WORKER)
    assert changes.observe(10.5) is None, "the worker has not trained"
    stage.commit(worker, 1)
    assert changes.observe(11.0) is None, "the throughput is measured a moment longer"
    reached = changes.observe(12.1)
    assert isinstance(reached, PlanReached) and reached.first_sample_s == {0: 1.0}
    assert stage.noted.events == [reached]
    assert changes.is_settled and changes.take_moved_s() == reached.lost_s and changes.take_moved_s() is None
    assert changes.observe(13.0) is None, "it is journalled once"


def test_readers_are_no_part_of_a_plan(stage: Stage) -> None:
    stage.changes.apply(PLAN, 10.0)
    for spec in (SERVER, ProcessSpec("reader", 0, (0,), 1)):
        stage.start(spec)
    stage.commit(stage.start(WORKER), 1)
    stage.changes.observe(11.0)
    assert isinstance(stage.changes.observe(12.1), PlanReached)


def test_a_newer_change_replaces_the_one_under_way(stage: Stage) -> None:
    stage.changes.apply(PLAN, 10.0)
    more = Plan((WORKER, ProcessSpec("worker", 1, (0,), 1), SERVER), "direct", "scale workers=2")
    stage.changes.apply(more, 11.0)
    assert stage.changes.number == 2 and stage.applied == [PLAN, more]
    for spec in (SERVER, WORKER):
        stage.start(spec)
    worker = stage.start(more.workers[1])
    stage.commit(worker, 1)
    stage.changes.observe(12.0)
    reached = stage.changes.observe(13.1)
    assert reached is not None and list(reached.first_sample_s) == [1], "the newer change has one new worker"


def test_no_plan_changes_once_the_run_stops(stage: Stage) -> None:
    stage.changes.apply(PLAN, 10.0)
    assert stage.changes.is_open
    stage.changes.close("the run was asked to stop")
    assert not stage.changes.is_open and not stage.changes.is_under_way and not stage.changes.is_settled
    assert stage.changes.observe(20.0) is None and stage.noted.events == []


def test_no_plan_changes_before_the_first_servers_serve(stage: Stage) -> None:
    stage.sharding.was_published = False
    assert not stage.changes.is_open
