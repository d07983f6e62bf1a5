from __future__ import annotations

from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.supervisor.lifecycle import State
from elastichost.supervisor.reconcile import (
    Death,
    Drain,
    Failure,
    GiveUp,
    Kill,
    Limits,
    ObservedProcess,
    Spawn,
    StopProcess,
    reconcile,
)

LIMITS = Limits(restarts=3, restart_window_s=60, hang_timeout_s=30, start_timeout_s=120)
WORKER, SERVER = ProcessSpec("worker", 0, (0,), 1), ProcessSpec("server", 0, (1,), 1)
PLAN = Plan((WORKER, SERVER), "direct", "test")
NOW_S = 1000.0


def seen(
    role: str, state: State, life: int = 1, still_s: float = 0.0, failure: Failure | None = None
) -> ObservedProcess:
    at_s = NOW_S - still_s
    return ObservedProcess(ProcessId(role, 0, life), state, at_s, at_s, failure)


def died(count: int, kind: str = "exit", ago_s: float = 1.0) -> list[Death]:
    return [Death("worker-0", NOW_S - ago_s, kind, "signal 9 (SIGKILL)") for _ in range(count)]  # type: ignore[arg-type]


def test_everything_missing_is_started_ps_first() -> None:
    actions = reconcile((), PLAN, (), LIMITS, NOW_S)
    assert [(a.spec.role, a.life) for a in actions if isinstance(a, Spawn)] == [("server", 1), ("worker", 1)]


def test_nothing_to_do() -> None:
    observed = (seen("worker", State.RUNNING), seen("server", State.RUNNING))
    assert reconcile(observed, PLAN, (), LIMITS, NOW_S) == ()


def test_a_dead_worker_gets_a_new_life_with_the_reason() -> None:
    observed = (seen("worker", State.FAILED, life=4), seen("server", State.RUNNING))
    (action,) = reconcile(observed, PLAN, died(1), LIMITS, NOW_S)
    assert isinstance(action, Spawn)
    assert action.life == 5
    assert "SIGKILL" in action.reason


def test_the_restart_budget_counts_deaths_in_the_window_only() -> None:
    observed = (seen("worker", State.FAILED), seen("server", State.RUNNING))
    assert isinstance(reconcile(observed, PLAN, died(3), LIMITS, NOW_S)[0], Spawn)
    assert isinstance(reconcile(observed, PLAN, died(9, ago_s=61), LIMITS, NOW_S)[0], Spawn)
    (action,) = reconcile(observed, PLAN, died(4), LIMITS, NOW_S)
    assert isinstance(action, GiveUp)
    assert (action.kind, action.process) == ("restart budget", ProcessId("worker", 0, 1))
    assert "4 times in 60 s" in action.reason


def test_hangs_beyond_the_budget_are_a_hang() -> None:
    observed = (seen("worker", State.FAILED), seen("server", State.RUNNING))
    (action,) = reconcile(observed, PLAN, died(4, kind="hang"), LIMITS, NOW_S)
    assert isinstance(action, GiveUp)
    assert action.kind == "hang"


def test_an_error_of_the_users_making_is_not_retried() -> None:
    failure = Failure("DataError", "file x row 3")
    observed = (seen("worker", State.FAILED, failure=failure), seen("server", State.RUNNING))
    (action,) = reconcile(observed, PLAN, died(1), LIMITS, NOW_S)
    assert action == GiveUp("failure", ProcessId("worker", 0, 1), "file x row 3", failure)


def test_other_errors_are_retried() -> None:
    observed = (seen("worker", State.FAILED, failure=Failure("OSError", "x")), seen("server", State.RUNNING))
    assert isinstance(reconcile(observed, PLAN, died(1), LIMITS, NOW_S)[0], Spawn)


def test_a_process_without_progress_is_killed() -> None:
    observed = (seen("worker", State.RUNNING, still_s=31), seen("server", State.RUNNING, still_s=29))
    (action,) = reconcile(observed, PLAN, (), LIMITS, NOW_S)
    assert isinstance(action, Kill)
    assert (action.process.role, action.kind) == ("worker", "hang")


def test_starting_has_its_own_patience() -> None:
    observed = (seen("worker", State.CONNECTED, still_s=119), seen("server", State.STARTED, still_s=121))
    (action,) = reconcile(observed, PLAN, (), LIMITS, NOW_S)
    assert isinstance(action, Kill)
    assert (action.process.role, action.kind) == ("server", "start")


def test_what_the_plan_does_not_want_is_drained_then_stopped() -> None:
    nothing = Plan((), "direct", "the job is asked to stop")
    for state in (State.READY, State.RUNNING):
        (action,) = reconcile((seen("worker", state),), nothing, (), LIMITS, NOW_S)
        assert action == Drain(ProcessId("worker", 0, 1), "the job is asked to stop")
    assert reconcile((seen("worker", State.DRAINING),), nothing, (), LIMITS, NOW_S) == ()
    for observed in (seen("worker", State.DRAINED), seen("server", State.RUNNING), seen("worker", State.CONNECTED)):
        (stop,) = reconcile((observed,), nothing, (), LIMITS, NOW_S)
        assert isinstance(stop, StopProcess)
    assert reconcile((seen("worker", State.STOPPING),), nothing, (), LIMITS, NOW_S) == ()
    assert reconcile((seen("worker", State.FAILED),), nothing, died(9), LIMITS, NOW_S) == ()
