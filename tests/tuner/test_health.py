"""Who is told to be slow and who is replaced, as a fold over looks one second apart."""

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
    state, said = state or HealthState(), list[tuple[int, Remark]]()
    for now_s in range(start_s, start_s + seconds):
        state, remarks = observe(state, speeds, SETTINGS, float(now_s))
        said += [(now_s, remark) for remark in remarks]
    return state, said


def test_a_hopeless_worker_is_replaced_after_a_while() -> None:
    _, said = look([speed(0, 100), speed(1, 24), speed(2, 100)], 20)
    ((at_s, remark),) = [entry for entry in said if entry[1].replace]
    assert (at_s, remark.process) == (15, ProcessId("worker", 1, 1))
    assert "24%" in remark.reason


def test_one_other_is_enough_when_it_is_four_times_faster() -> None:
    assert [r.process.index for _, r in look([speed(0, 100), speed(1, 24)], 16)[1] if r.replace] == [1]
    assert not [r for _, r in look([speed(0, 100), speed(1, 26)], 60)[1] if r.replace]


def test_a_slow_one_is_told_once_and_kept() -> None:
    _, said = look([speed(0, 100), speed(1, 50), speed(2, 100)], 200)
    ((at_s, remark),) = said
    assert (at_s, remark.replace, remark.process.index) == (15, False, 1)


def test_nobody_is_blamed_for_being_short_of_input_or_of_peers() -> None:
    assert look([speed(0, 100), speed(1, 100, wall=5)], 60)[1] == []
    assert look([speed(0, 100), speed(1, 10, wall=100)], 60)[1] == []


def test_without_work_without_others_and_of_another_kind_nothing_is_said() -> None:
    assert look([speed(0, 100), speed(1, 1, work=False)], 60)[1] == []
    assert look([speed(1, 1)], 60)[1] == []
    assert look([speed(0, 1000, gpu=True), speed(1, 10)], 60)[1] == []


def test_a_recovery_begins_the_count_anew() -> None:
    state, said = look([speed(0, 100), speed(1, 10)], 14)
    state, more = look([speed(0, 100), speed(1, 90)], 1, state, 14)
    _, last = look([speed(0, 100), speed(1, 10)], 15, state, 15)
    assert said + more + last == []


def test_what_was_known_holds_while_nothing_is_trained() -> None:
    state, _ = look([speed(0, 100), speed(1, 10)], 3)
    _, said = look([speed(0, 100), speed(1, None)], 20, state, 3)
    assert [(at_s, remark.replace) for at_s, remark in said] == [(15, True)]


def test_an_index_is_replaced_once_in_five_minutes_and_that_is_told() -> None:
    state, said = look([speed(0, 100), speed(1, 10)], 16)
    assert [remark.replace for _, remark in said] == [True]
    state, said = look([speed(0, 100), speed(1, 10, incarnation=2)], 298, state, 16)
    assert [remark.replace for _, remark in said] == [False]
    assert "which did not help" in said[0][1].reason
    _, said = look([speed(0, 100), speed(1, 10, incarnation=2)], 3, state, 314)
    assert [(at_s, remark.replace) for at_s, remark in said] == [(315, True)]


rates = st.one_of(st.none(), st.floats(0.1, 1e6))


@given(
    looks=st.lists(st.lists(st.tuples(rates, st.booleans()), min_size=1, max_size=5), min_size=1, max_size=60),
)
def test_never_the_fastest_never_two_at_once_never_too_often(
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
        assert set(state.incarnations) == {s.process for s in speeds}, "what is gone is forgotten"


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=12), st.integers(0, 11))
def test_the_median_of_the_others_is_that_without_oneself(values: list[float], place: int) -> None:
    ordered, place = sorted(values), place % len(values)
    others = [*ordered[:place], *ordered[place + 1 :]]
    assert _median_without(ordered, place) == statistics.median(others)
