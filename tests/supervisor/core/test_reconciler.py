"""The actions that bring the processes of a run to its plan: starts, restarts, kills, drains and stops."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.supervisor.core.lifecycle import LIVE, LifecycleEvent, State, next_state
from elastichost.supervisor.core.reconciler import (
    Death,
    Drain,
    Failure,
    GiveUp,
    Kill,
    Limits,
    ObservedProcess,
    Repin,
    Spawn,
    StopProcess,
    reconcile,
)

LIMITS = Limits(restarts=3, restart_window_s=60, hang_timeout_s=30, start_timeout_s=120)
WORKER, SERVER = ProcessSpec("worker", 0, (0,), 1), ProcessSpec("server", 0, (1,), 1)
PLAN = Plan((WORKER, SERVER), "direct", "test")
NOW_S = 1000.0


def seen(
    role: str, state: State, incarnation: int = 1, still_s: float = 0.0, failure: Failure | None = None
) -> ObservedProcess:
    """Process 0 of a role. still_s: seconds without progress."""
    at_s = NOW_S - still_s
    return ObservedProcess(ProcessId(role, 0, incarnation), state, at_s, at_s, failure)


def deaths_of_worker(count: int, kind: str = "exit", ago_s: float = 1.0) -> list[Death]:
    """Deaths of worker 0."""
    return [Death("worker-0", NOW_S - ago_s, kind, "signal 9 (SIGKILL)") for _ in range(count)]  # type: ignore[arg-type]


def test_missing_processes_are_started_ps_first() -> None:
    actions = reconcile((), PLAN, (), LIMITS, NOW_S)
    assert [(a.spec.role, a.incarnation) for a in actions if isinstance(a, Spawn)] == [("server", 1), ("worker", 1)]


def test_readers_start_behind_their_workers_and_are_stopped_at_once_when_they_are_not_wanted() -> None:
    reader = ProcessSpec("reader", 0, (0,), 1)
    actions = reconcile((), Plan((reader, WORKER, SERVER), "direct", "test"), (), LIMITS, NOW_S)
    assert [a.spec.role for a in actions if isinstance(a, Spawn)] == ["server", "worker", "reader"]
    observed = (seen("worker", State.RUNNING), seen("server", State.RUNNING), seen("reader", State.RUNNING))
    (action,) = reconcile(observed, PLAN, (), LIMITS, NOW_S)
    assert isinstance(action, StopProcess)
    assert action.process == ProcessId("reader", 0, 1)


def test_there_is_no_action_when_the_processes_are_those_of_the_plan() -> None:
    observed = (seen("worker", State.RUNNING), seen("server", State.RUNNING))
    assert reconcile(observed, PLAN, (), LIMITS, NOW_S) == ()


def test_a_dead_worker_gets_a_new_incarnation_with_the_reason() -> None:
    observed = (seen("worker", State.FAILED, incarnation=4), seen("server", State.RUNNING))
    (action,) = reconcile(observed, PLAN, deaths_of_worker(1), LIMITS, NOW_S)
    assert isinstance(action, Spawn)
    assert action.incarnation == 5
    assert "SIGKILL" in action.reason


def test_the_restart_budget_counts_deaths_in_the_window_only() -> None:
    observed = (seen("worker", State.FAILED), seen("server", State.RUNNING))
    assert isinstance(reconcile(observed, PLAN, deaths_of_worker(3), LIMITS, NOW_S)[0], Spawn)
    assert isinstance(reconcile(observed, PLAN, deaths_of_worker(9, ago_s=61), LIMITS, NOW_S)[0], Spawn)
    (action,) = reconcile(observed, PLAN, deaths_of_worker(4), LIMITS, NOW_S)
    assert isinstance(action, GiveUp)
    assert (action.kind, action.process) == ("restart budget", ProcessId("worker", 0, 1))
    assert "4 times in 60 s" in action.reason


def test_the_restart_budget_exhausted_by_hangs_is_reported_as_a_hang() -> None:
    observed = (seen("worker", State.FAILED), seen("server", State.RUNNING))
    (action,) = reconcile(observed, PLAN, deaths_of_worker(4, kind="hang"), LIMITS, NOW_S)
    assert isinstance(action, GiveUp)
    assert action.kind == "hang"


def test_a_user_error_is_not_retried() -> None:
    failure = Failure("DataError", "file x row 3")
    observed = (seen("worker", State.FAILED, failure=failure), seen("server", State.RUNNING))
    (action,) = reconcile(observed, PLAN, deaths_of_worker(1), LIMITS, NOW_S)
    assert action == GiveUp("failure", ProcessId("worker", 0, 1), "file x row 3", failure)


def test_a_user_error_counts_while_workers_drain_and_not_once_all_is_saved() -> None:
    failed = seen("worker", State.FAILED, failure=Failure("DataError", "file x row 3"))
    observed = (failed, seen("server", State.RUNNING))
    drains = Plan(tuple(spec for spec in PLAN.processes if spec.role == "server"), "direct", "asked to stop")
    assert isinstance(reconcile(observed, drains, (), LIMITS, NOW_S)[0], GiveUp)
    ends = reconcile(observed, Plan((), "direct", "trained and saved"), (), LIMITS, NOW_S)
    assert not any(isinstance(action, GiveUp) for action in ends)


def test_other_errors_are_retried() -> None:
    observed = (seen("worker", State.FAILED, failure=Failure("OSError", "x")), seen("server", State.RUNNING))
    assert isinstance(reconcile(observed, PLAN, deaths_of_worker(1), LIMITS, NOW_S)[0], Spawn)


def test_a_process_without_progress_is_killed() -> None:
    observed = (seen("worker", State.RUNNING, still_s=31), seen("server", State.RUNNING, still_s=29))
    (action,) = reconcile(observed, PLAN, (), LIMITS, NOW_S)
    assert isinstance(action, Kill)
    assert (action.process.role, action.kind) == ("worker", "hang")


def test_starting_has_its_own_timeout() -> None:
    observed = (seen("worker", State.CONNECTED, still_s=119), seen("server", State.STARTED, still_s=121))
    (action,) = reconcile(observed, PLAN, (), LIMITS, NOW_S)
    assert isinstance(action, Kill)
    assert (action.process.role, action.kind) == ("server", "start")


def test_a_ps_that_restores_its_rows_may_take_as_long_as_it_shows_progress_and_workers_wait_for_it() -> None:
    restores = msgspec.structs.replace(seen("server", State.CONNECTED, still_s=500), moved_s=NOW_S - 5)
    assert reconcile((seen("worker", State.RUNNING), restores), PLAN, (), LIMITS, NOW_S) == ()
    waits = msgspec.structs.replace(seen("worker", State.CONNECTED, still_s=500), moved_s=NOW_S - 5)
    assert reconcile((waits, restores), PLAN, (), LIMITS, NOW_S) == ()
    (action,) = reconcile((seen("worker", State.CONNECTED, still_s=500), restores), PLAN, (), LIMITS, NOW_S)
    assert isinstance(action, Kill)
    assert action.process.role == "worker"


def test_processes_not_in_the_plan_are_drained_then_stopped() -> None:
    nothing = Plan((), "direct", "the run was asked to stop")
    for state in (State.READY, State.RUNNING):
        (action,) = reconcile((seen("worker", state),), nothing, (), LIMITS, NOW_S)
        assert action == Drain(ProcessId("worker", 0, 1), "the run was asked to stop")
    assert reconcile((seen("worker", State.DRAINING),), nothing, (), LIMITS, NOW_S) == ()
    for observed in (seen("worker", State.DRAINED), seen("server", State.RUNNING), seen("worker", State.CONNECTED)):
        (stop,) = reconcile((observed,), nothing, (), LIMITS, NOW_S)
        assert isinstance(stop, StopProcess)
    assert reconcile((seen("worker", State.STOPPING),), nothing, (), LIMITS, NOW_S) == ()
    assert reconcile((seen("worker", State.FAILED),), nothing, deaths_of_worker(9), LIMITS, NOW_S) == ()


# --- plans that change while the job trains -------------------------------------------------------------------------


def spec_of(process: str, cores: tuple[int, ...] = (0,), threads: int = 1) -> ProcessSpec:
    """The spec of a process such as "worker-1"."""
    role, _, index = process.partition("-")
    return ProcessSpec(role, int(index), cores, threads)  # type: ignore[arg-type]


def at(process: str, state: State = State.RUNNING, incarnation: int = 1, **facts: Any) -> ObservedProcess:
    """A process in a state."""
    role, _, index = process.partition("-")
    spec = facts.pop("spec", spec_of(process))
    return ObservedProcess(ProcessId(role, int(index), incarnation), state, NOW_S, NOW_S, spec=spec, **facts)


def plan_of(*processes: str) -> Plan:
    """A plan of processes such as "worker-1"."""
    return Plan(tuple(spec_of(process) for process in processes), "direct", "asked for it")


ONE_EACH = plan_of("worker-0", "server-0")


def test_a_ps_that_owns_buckets_is_kept_and_started_again_whatever_the_plan_says() -> None:
    kept = (at("worker-0"), at("server-0"), at("server-1"))
    owners = frozenset({0, 1})
    assert reconcile(kept, ONE_EACH, (), LIMITS, NOW_S, owners, is_handed_over=False) == ()
    died_meanwhile = (*kept[:2], at("server-1", State.FAILED))
    deaths = [Death("server-1", NOW_S, "exit", "signal 9", 1)]
    (action,) = reconcile(died_meanwhile, ONE_EACH, deaths, LIMITS, NOW_S, owners, is_handed_over=False)
    assert action == Spawn(spec_of("server-1"), 2, "server-1.1 ended: signal 9", True)
    (stop,) = reconcile(kept, ONE_EACH, (), LIMITS, NOW_S, frozenset({0}))
    assert stop == StopProcess(ProcessId("server", 1, 1), "asked for it")
    assert reconcile(died_meanwhile, ONE_EACH, deaths, LIMITS, NOW_S, frozenset({0})) == ()


def test_a_new_plan_starts_processes_then_hands_over_then_repins_then_drains() -> None:
    wide = spec_of("worker-0", (0, 1), 2)
    plan = Plan((wide, spec_of("worker-2"), spec_of("server-0")), "direct", "asked for it")
    before = (at("worker-0"), at("worker-1"), at("server-0"))
    (spawn,) = reconcile(before, plan, (), LIMITS, NOW_S)
    assert isinstance(spawn, Spawn)
    assert spawn.spec.index == 2
    starting = (*before, at("worker-2", State.CONNECTED))
    assert reconcile(starting, plan, (), LIMITS, NOW_S) == ()
    there = (*before, at("worker-2", State.READY))
    assert reconcile(there, plan, (), LIMITS, NOW_S, is_handed_over=False) == ()
    (repin,) = reconcile(there, plan, (), LIMITS, NOW_S)
    assert repin == Repin(ProcessId("worker", 0, 1), wide)
    asked = (at("worker-0", asked=wide), *there[1:])
    assert reconcile(asked, plan, (), LIMITS, NOW_S) == (), (
        "Repin is sent once, and no process drains before it is confirmed"
    )
    (drain,) = reconcile((at("worker-0", spec=wide), *there[1:]), plan, (), LIMITS, NOW_S)
    assert drain == Drain(ProcessId("worker", 1, 1), "asked for it")


def test_a_run_asked_to_stop_drains_at_once() -> None:
    observed = (at("worker-0"), at("server-0", State.CONNECTED))
    (drain,) = reconcile(observed, plan_of("server-0"), (), LIMITS, NOW_S, frozenset({0}), is_handed_over=False)
    assert isinstance(drain, Drain)


def test_cores_that_change_again_before_the_first_answer_are_sent_again() -> None:
    first, second = spec_of("worker-0", (1,)), spec_of("worker-0", (2,))
    plan = Plan((second, spec_of("server-0")), "direct", "asked for it")
    (repin,) = reconcile((at("worker-0", asked=first), at("server-0")), plan, (), LIMITS, NOW_S)
    assert repin == Repin(ProcessId("worker", 0, 1), second)


def test_a_drained_process_back_in_the_plan_starts_again_without_a_restart() -> None:
    plan, others = plan_of("worker-0", "worker-1", "server-0"), (at("worker-0"), at("server-0"))
    for state in (State.DRAINING, State.STOPPING, State.KILLING):
        assert reconcile((*others, at("worker-1", state)), plan, (), LIMITS, NOW_S) == ()
    (stop,) = reconcile((*others, at("worker-1", State.DRAINED)), plan, (), LIMITS, NOW_S)
    assert isinstance(stop, StopProcess)
    (spawn,) = reconcile(
        (*others, at("worker-1", State.EXITED, incarnation=3)), plan, deaths_of_worker(9), LIMITS, NOW_S
    )
    assert spawn == Spawn(spec_of("worker-1"), 4, "in the plan again; worker-1.3 was stopped")
    (spawn,) = reconcile((*others, at("worker-1", State.FAILED, incarnation=3)), plan, (), LIMITS, NOW_S)
    assert isinstance(spawn, Spawn)
    assert not spawn.is_restart, "it was killed because it was not in the plan"


def test_a_process_that_does_not_stop_in_time_is_killed_as_unwanted() -> None:
    others = (at("worker-0"), at("server-0"))
    lingering = ObservedProcess(ProcessId("worker", 1, 1), State.STOPPING, NOW_S - 11, NOW_S)
    for observed in (lingering, at("worker-1", State.STARTED)):
        (kill,) = reconcile((*others, observed), ONE_EACH, (), LIMITS, NOW_S)
        assert isinstance(kill, Kill)
        assert kill.kind == "unwanted"


def test_the_restart_of_a_straggler_does_not_count_in_the_restart_budget() -> None:
    observed = (seen("worker", State.FAILED, incarnation=9), seen("server", State.RUNNING))
    deaths = [*deaths_of_worker(3), *deaths_of_worker(5, kind="slow")]
    (action,) = reconcile(observed, PLAN, deaths, LIMITS, NOW_S)
    assert isinstance(action, Spawn)
    assert action.is_restart


EVENT_OF = {Kill: LifecycleEvent.KILL, Drain: LifecycleEvent.DRAIN, StopProcess: LifecycleEvent.STOP}
STATES = st.sampled_from(sorted(LIVE - {State.REQUESTED}, key=lambda state: state.value))
SEEN = st.builds(
    lambda role, index, state, still_s: msgspec.structs.replace(
        seen(role, state, still_s=still_s), process=ProcessId(role, index, 1)
    ),
    st.sampled_from(["worker", "server"]),
    st.integers(0, 2),
    STATES,
    st.sampled_from([0.0, 4.0, 31.0, 500.0]),
)


@given(
    observed=st.lists(SEEN, max_size=6, unique_by=lambda one: one.process.name),
    plan=st.sampled_from([PLAN, Plan((), "direct", "asked to stop"), Plan((SERVER,), "direct", "a host is lost")]),
)
def test_all_actions_of_a_turn_can_be_performed_one_after_another(observed: list[ObservedProcess], plan: Plan) -> None:
    """Regression: a worker that hung was killed and drained in one turn, which ended the run as a bug."""
    states = {one.process: one.state for one in observed}
    for action in reconcile(tuple(observed), plan, (), LIMITS, NOW_S):
        if isinstance(action, Kill | Drain | StopProcess):
            process = action.process
            states[process] = next_state(str(process), states[process], EVENT_OF[type(action)])


def test_a_hung_worker_that_is_not_wanted_is_killed_and_not_drained() -> None:
    observed = (seen("worker", State.RUNNING, still_s=31.0), seen("server", State.RUNNING))
    (action, *others) = reconcile(observed, Plan((), "direct", "asked to stop"), (), LIMITS, NOW_S)
    assert isinstance(action, Kill) and not any(isinstance(other, Drain) for other in others)
