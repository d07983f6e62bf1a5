"""Only one module writes the plan, and every plan that it writes is journalled."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import elastichost.supervisor
from elastichost.plan import Plan, ProcessSpec
from elastichost.resources import GpuDevice
from elastichost.runs.events import PlanChanged
from elastichost.supervisor.controllers.plan import PlanController, plan_without_lost_hosts
from elastichost.tuner.cold_start import initial_plan
from elastichost.wire.commands import ScaleMsg
from tests.supervisor.noted import Noted

CORES = (0, 1, 2)


def plans(
    *, is_asked: bool = False, lost: frozenset[int] = frozenset(), gpus: tuple[GpuDevice, ...] = ()
) -> tuple[PlanController, Any, Noted]:
    """A controller, its run and the events of the run. lost: hosts that the run has lost."""
    noted = Noted()
    run: Any = SimpleNamespace(
        plan=Plan((), "direct", "nothing yet"),
        hosts=1,
        machines=None,
        cores_elsewhere={},
        capacity=lambda cores: (),
        uses=lambda host: host not in lost,
        size=(0, 0),
        last_decision="",
        **noted.attributes,
    )
    return PlanController(run, CORES, gpus, is_asked=is_asked), run, noted


def first() -> Plan:
    """The first plan of a run."""
    return initial_plan(cores=CORES, workers=2, servers=1)


@pytest.mark.parametrize(("is_asked", "origin"), [(False, "start"), (True, "scale")])
def test_the_first_plan_records_whether_the_user_chose_it(is_asked: bool, origin: str) -> None:
    controller, run, noted = plans(is_asked=is_asked)
    controller.begin(first())
    assert run.plan == first() and run.size == (2, 1)
    (event,) = noted.events
    assert isinstance(event, PlanChanged)
    assert (event.workers, event.servers, event.origin) == (2, 1, origin)


def test_a_resized_plan_has_cores_for_every_process_and_is_not_applied_yet() -> None:
    controller, run, noted = plans()
    controller.begin(first())
    before, events_before = run.plan, list(noted.events)
    plan, _ = controller.resized(ScaleMsg(workers=3), "more")
    assert [len(plan.workers), len(plan.servers)] == [3, 1]
    assert all(spec.cores for spec in plan.processes), "every process has cores"
    assert run.plan is before and noted.events == events_before


def test_the_plan_of_a_stopping_run_keeps_the_servers_and_the_recorded_size() -> None:
    controller, run, noted = plans()
    controller.begin(first())
    controller.drain(run.plan.servers, "SIGINT")
    assert not run.plan.workers and len(run.plan.servers) == 1
    assert run.size == (2, 1), "result.json has the size that trained"
    controller.end("the run ends")
    assert run.plan.processes == ()
    assert [type(event) for event in noted.events] == [PlanChanged, PlanChanged], "the run itself journals its end"


def test_lost_gpus_are_given_up_and_no_later_plan_uses_them() -> None:
    gpus = (GpuDevice(0, "a", 1 << 30), GpuDevice(1, "b", 1 << 30))
    controller, run, _ = plans(gpus=gpus)
    run.plan = initial_plan(cores=CORES, workers=2, gpus=gpus)
    plan = controller.without_gpus({0}, "GPU 0 is lost")
    assert [(spec.index, spec.gpu) for spec in plan.workers] == [(1, 1)]
    assert plan.workers[0].cores and plan.reason == "GPU 0 is lost"
    assert controller.gpus == gpus[1:]
    run.plan = plan
    grown, _ = controller.resized(ScaleMsg(workers=3), "more")
    assert [(spec.index, spec.gpu) for spec in grown.workers] == [(0, None), (1, 1), (2, None)]


def test_processes_of_lost_hosts_leave_the_plan_and_one_worker_stays_on_host_0() -> None:
    controller, run, _ = plans(lost=frozenset({1}))
    there = (ProcessSpec("worker", 1, (5,), 1, host=1), ProcessSpec("worker", 2, (6,), 1, host=1))
    run.plan = Plan((*there, ProcessSpec("server", 0, (0,), 1)), "direct", "before")
    left = plan_without_lost_hosts(run.plan, run)
    assert [(spec.role, spec.index, spec.host) for spec in left.processes] == [("worker", 1, 0), ("server", 0, 0)]
    assert controller.without_lost_hosts("host b is lost").reason == "host b is lost"


def test_no_other_module_of_the_supervisor_writes_the_plan() -> None:
    root = Path(elastichost.supervisor.__file__).parent
    writers = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            parts = [part for target in targets if target is not None for part in ast.walk(target)]
            if any(isinstance(part, ast.Attribute) and part.attr == "plan" for part in parts):
                writers.add(path.relative_to(root).as_posix())
    assert writers == {"controllers/plan.py"}
