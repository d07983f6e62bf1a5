"""Which workers are reported as slow and which are replaced, in samples one second apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from elastichost.plan import ProcessId
from elastichost.tuner.health import HealthSettings, HealthState, Remark, WorkerSpeed, _median_without, observe

SETTINGS = HealthSettings(after_s=15.0, replace_every_s=300.0)


def speed(
    index: int,
    rate: float | None,
    *,
    wall: float | None = None,
    incarnation: int = 1,
    work: bool = True,
    gpu: bool = False,
) -> WorkerSpeed:
    process = ProcessId("worker", index, incarnation)
    return WorkerSpeed(process, rate, rate if wall is None else wall, has_work=work, is_gpu=gpu)


def look(
    speeds: Sequence[WorkerSpeed], seconds: int, state: HealthState | None = None, start_s: int = 0
) -> tuple[HealthState, list[tuple[int, Remark]]]:
    """Observes the same speeds every second. Returns the state, and the remarks with their seconds."""
    state, said = state or HealthState(), list[tuple[int, Remark]]()
    for now_s in range(start_s, start_s + seconds):
        state, remarks = observe(state, speeds, SETTINGS, float(now_s))
        said += [(now_s, remark) for remark in remarks]
    return state, said


def test_a_worker_below_the_hopeless_share_is_replaced_after_after_s() -> None:
    _, said = look([speed(0, 100), speed(1, 24), speed(2, 100)], 20)
    ((at_s, remark),) = [entry for entry in said if entry[1].replace]
    assert (at_s, remark.process) == (15, ProcessId("worker", 1, 1))
    assert "24%" in remark.reason


def test_one_other_worker_is_enough_for_a_comparison() -> None:
    assert [r.process.index for _, r in look([speed(0, 100), speed(1, 39)], 16)[1] if r.replace] == [1]
    assert not [r for _, r in look([speed(0, 100), speed(1, 41)], 60)[1] if r.replace]


def test_a_slow_worker_is_reported_once_and_not_replaced() -> None:
    _, said = look([speed(0, 100), speed(1, 50), speed(2, 100)], 200)
    ((at_s, remark),) = said
    assert (at_s, remark.replace, remark.process.index) == (15, False, 1)


def test_a_worker_that_waits_for_input_or_peers_is_not_reported() -> None:
    assert look([speed(0, 100), speed(1, 100, wall=5)], 60)[1] == []
    assert look([speed(0, 100), speed(1, 10, wall=100)], 60)[1] == []


def test_no_remark_without_work_without_other_workers_or_for_another_kind() -> None:
    assert look([speed(0, 100), speed(1, 1, work=False)], 60)[1] == []
    assert look([speed(1, 1)], 60)[1] == []
    assert look([speed(0, 1000, gpu=True), speed(1, 10)], 60)[1] == []


def test_a_recovery_restarts_the_clock() -> None:
    state, said = look([speed(0, 100), speed(1, 10)], 14)
    state, more = look([speed(0, 100), speed(1, 90)], 1, state, 14)
    _, last = look([speed(0, 100), speed(1, 10)], 15, state, 15)
    assert said + more + last == []


def test_the_last_speed_stays_valid_while_a_worker_trains_nothing() -> None:
    state, _ = look([speed(0, 100), speed(1, 10)], 3)
    _, said = look([speed(0, 100), speed(1, None)], 20, state, 3)
    assert [(at_s, remark.replace) for at_s, remark in said] == [(15, True)]


def test_an_index_is_replaced_once_in_five_minutes_and_the_reason_says_so() -> None:
    state, said = look([speed(0, 100), speed(1, 10)], 16)
    assert [remark.replace for _, remark in said] == [True]
    state, said = look([speed(0, 100), speed(1, 10, incarnation=2)], 298, state, 16)
    assert [remark.replace for _, remark in said] == [False]
    assert "and is still slow" in said[0][1].reason
    _, said = look([speed(0, 100), speed(1, 10, incarnation=2)], 3, state, 314)
    assert [(at_s, remark.replace) for at_s, remark in said] == [(315, True)]


rates = st.one_of(st.none(), st.floats(0.1, 1e6))


@given(
    looks=st.lists(st.lists(st.tuples(rates, st.booleans()), min_size=1, max_size=5), min_size=1, max_size=60),
)
def test_the_fastest_worker_is_never_replaced_nor_two_at_once_nor_too_often(
    looks: list[list[tuple[float | None, bool]]],
) -> None:
    settings = HealthSettings(after_s=2.0, replace_every_s=20.0)
    state, incarnations, last = HealthState(), [1] * 5, dict[int, int]()
    known = dict[ProcessId, float]()
    for now_s, rows in enumerate(looks):
        speeds = [speed(i, rate, incarnation=incarnations[i], work=work) for i, (rate, work) in enumerate(rows)]
        known = {s.process: s.compute_per_s or known.get(s.process, 0.0) for s in speeds}
        state, remarks = observe(state, speeds, settings, float(now_s))
        replaced = [remark.process for remark in remarks if remark.replace]
        assert len(replaced) <= 1
        for process in replaced:
            assert known[process] < max(known.values()) / 4
            assert now_s - last.get(process.index, -20) >= 20
            last[process.index] = now_s
            incarnations[process.index] += 1
        assert set(state.incarnations) == {s.process for s in speeds}, "the state keeps only present workers"


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=12), st.integers(0, 11))
def test_median_without_leaves_out_one_value(values: list[float], place: int) -> None:
    ordered, place = sorted(values), place % len(values)
    others = [*ordered[:place], *ordered[place + 1 :]]
    assert _median_without(ordered, place) == statistics.median(others)
