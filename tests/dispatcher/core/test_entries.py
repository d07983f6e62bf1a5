"""The entry of one job in the core: the demand that the policy gets, and the status that users see."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.dispatcher.core.demands import Known
from elastichost.dispatcher.core.entries import JobEntry
from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent
from elastichost.errors import IllegalTransitionError
from elastichost.tuner.colocation.facts import PlacedJob, Placement
from tests.dispatcher.jobs import MB, POWER, examined, request, seen

MEASURED = Known(worker_cpu_s=1e-3, all_cpu_s=1.1e-3, seconds=30.0)


def entry(least: int = 1, most: int = 3, known: Known | None = MEASURED, **facts: object) -> JobEntry:
    """The entry of an examined job that waits."""
    found = examined("a", least=least, most=most, **facts)  # type: ignore[arg-type]
    return JobEntry(request("a", weight=2.0), 5.0, examined=found, known=known)


def place(one: JobEntry, mode: int) -> None:
    """Places the job in one of its modes."""
    demand = one.demand(POWER)
    one.placed = PlacedJob(demand, Placement(mode), demand.modes[mode].memory_bytes)


def test_the_demand_that_the_policy_gets() -> None:
    one = entry()
    one.trained, one.alone, one.not_before_s = 40_000, True, 9.0
    demand = one.demand(POWER)
    assert (demand.job, demand.weight, demand.arrived_s) == ("a", 2.0, 5.0)
    assert (demand.samples_left, demand.exclusive, demand.not_before_s) == (60_000, True, 9.0)
    assert demand.is_measured
    assert [mode.workers for mode in demand.modes] == [1, 2, 3]
    one.trained = 200_000
    assert one.demand(POWER).samples_left == 1.0, "a job that runs always has samples left"


def test_a_new_job_is_not_measured() -> None:
    assert not entry(known=None).demand(POWER).is_measured


def test_the_kind_of_a_job_is_the_resource_that_limits_it() -> None:
    assert entry(reader=100.0).demand(POWER).kind == "input"
    assert entry().demand(POWER).kind == "dense"
    assert entry(row_bytes=3_000_000).demand(POWER).kind == "embedding"


def test_every_mode_needs_more_memory_after_the_job_ran_out_of_it() -> None:
    one = entry(memory_mb=1000)
    one.raised = 1.5
    assert [mode.memory_bytes for mode in one.demand(POWER).modes] == [1500 * MB, 1650 * MB, 1800 * MB]


def test_a_running_job_keeps_its_size_whatever_is_learnt() -> None:
    one = entry()
    place(one, 2)
    one.known = msgspec.structs.replace(MEASURED, all_cpu_s=4e-3)  # now a second worker adds nothing
    one.replaced(POWER)
    assert one.placed is not None
    assert one.placed.mode.workers == 3
    assert [mode.workers for mode in one.placed.demand.modes] == [1, 3]
    before = one.placed
    one.replaced(POWER)
    assert one.placed == before
    waiting = entry()
    waiting.replaced(POWER)
    assert waiting.placed is None


def test_an_event_changes_the_state_and_the_reason() -> None:
    one = entry()
    one.apply(JobLifecycleEvent.START, "there is room")
    assert (one.state, one.why, one.is_live) == ("starting", "there is room", True)
    with pytest.raises(IllegalTransitionError):
        one.apply(JobLifecycleEvent.CANCEL, "")
    assert one.state == "starting"
    one.apply(JobLifecycleEvent.DONE, "done")
    assert not one.is_live


def test_the_status_of_a_job_that_waits_runs_and_has_ended() -> None:
    one = entry(samples=1000)
    waiting = one.status(None)
    assert (waiting.state, waiting.workers, waiting.kind, waiting.samples_planned) == ("waiting", 0, "", 1000)
    place(one, 1)
    one.state, one.seen, one.trained, one.predicted = "running", seen("a", memory_mb=70), 300, 0.5
    running = one.status(None)
    assert (running.workers, running.kind, running.memory_bytes, running.cpu_cores) == (2, "dense", 70 * MB, 0.5)
    assert (running.samples_trained, running.predicted_speed) == (300, 0.5)
    assert running.solo_samples_per_s == pytest.approx(2000)
    one.state, one.placed = "done", None
    over = one.status(None)
    assert (over.memory_bytes, over.cpu_cores, over.samples_per_s, over.predicted_speed) == (0, 0, 0, 0)
    assert over.samples_trained == 300
