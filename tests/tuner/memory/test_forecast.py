"""Decisions about memory: when no action is needed, which action is chosen, in which order, and when it only warns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.history.features import Estimates
from elastichost.tuner.memory.facts import AGE_EDGES, HostMemorySample, MemoryDecision, MemorySample
from elastichost.tuner.memory.forecast import MemoryState, begin, decide, predict
from elastichost.tuner.memory.horizon import LATE, kept_bytes, longest_horizon
from tests.effort import examples

ROW = 200.0
RATE = 20_000
BASE = 200e6
ALL = ("move", "evict", "admit", "shrink")


def rows_at(n: float, beta: float = 0.8, scale: float = 20.0) -> float:
    return float(scale * n**beta)


def look_at(second: int, *, budget: float = 1e9, total: int = 10**9, **changes: Any) -> MemorySample:
    """A run on one host that trains RATE samples per second; its ids follow Heaps' law, and no row is dropped."""
    n = RATE * second
    made = rows_at(n) * ROW
    host = HostMemorySample(0, int(budget), int(BASE + made), made, 1.0)
    facts: dict[str, Any] = {
        "samples": n,
        "samples_left": max(0, total - n),
        "samples_per_s": float(RATE),
        "made_bytes": made,
        "row_bytes": ROW,
        "live_bytes": made,
        "own_bytes": 0.0,
        "hosts": (host,),
        "possible": ALL,
    }
    return MemorySample(**{**facts, **changes})


def decisions(seconds: range, **facts: Any) -> Iterator[tuple[int, MemoryState, MemoryDecision]]:
    state = MemoryState()
    for second in seconds:
        state, decision = decide(state, look_at(second, **facts), float(second))
        yield second, state, decision


def first(seconds: range, **facts: Any) -> tuple[int, MemoryDecision]:
    """The first decision other than "stay"."""
    return next((second, found) for second, _, found in decisions(seconds, **facts) if found.kind != "stay")


def exceeds_at(budget: float) -> int:
    return next(second for second in range(1, 10**6) if BASE + rows_at(RATE * second) * ROW > budget)


def test_sufficient_memory_needs_no_action_and_the_reason_says_so() -> None:
    found = list(decisions(range(1, 200), budget=50e9, total=10**8))
    assert {decision.kind for _, _, decision in found} == {"stay"}
    last = found[-1][2]
    assert last.chance == 0.0 and last.exceeds_in_s is None
    assert "MiB are used" in last.reason


@pytest.mark.parametrize("budget", [2e9, 4e9])
def test_an_exceeded_budget_is_predicted_in_time(budget: float) -> None:
    at_s = exceeds_at(budget)
    alarm_s, decision = first(range(1, at_s + 1), budget=budget)
    assert decision.kind == "evict"
    assert decision.chance > 0.05
    assert at_s - alarm_s >= 60
    assert decision.exceeds_in_s == pytest.approx(at_s - alarm_s, rel=0.25)


def test_a_run_that_ends_before_needs_no_action_and_the_reason_says_so() -> None:
    """At the present rate the budget would be exceeded within minutes, but the run ends before that."""
    at_s = exceeds_at(2e9)
    total = round(0.98 * RATE * at_s)
    found = list(decisions(range(1, round(0.9 * at_s)), budget=2e9, total=round(0.85 * RATE * at_s)))
    assert {decision.kind for _, _, decision in found} == {"stay"}
    reasons = [d.reason for _, _, d in decisions(range(1, round(0.8 * at_s)), budget=2e9, total=total)]
    assert any("the run is expected to end before the budget is exceeded" in reason for reason in reasons)


def test_no_new_ids_after_the_first_epoch_mean_no_growth() -> None:
    at_s = exceeds_at(2e9)
    until = round(0.9 * RATE * at_s)
    assert first(range(1, at_s), budget=2e9)[1].kind == "evict"
    found = {d.kind for _, _, d in decisions(range(1, round(0.9 * at_s)), budget=2e9, new_ids_until=until)}
    assert found == {"stay"}


def test_possible_actions_are_chosen_in_order() -> None:
    at_s = exceeds_at(2e9)
    other = HostMemorySample(1, 4_000_000_000, 10_000_000, 0.0, 0.0, may_take=True)

    def first_kind(*possible: str, **changes: Any) -> MemoryDecision:
        return first(range(at_s - 250, at_s), budget=2e9, possible=possible, **changes)[1]

    look = look_at(at_s - 250, budget=2e9)
    assert first_kind(*ALL).kind == "evict", "there is no other host"
    assert first_kind("admit", "shrink").kind == "admit"
    shrink = first_kind("shrink", workers=4, worker_bytes=10**9)
    assert (shrink.kind, shrink.workers) == ("shrink", 3)
    assert first_kind("shrink", workers=1, worker_bytes=10**9).kind == "warn"
    assert first_kind().kind == "warn"
    state, decision = MemoryState(), MemoryDecision("stay", "")
    for second in range(at_s - 250, at_s):
        look = look_at(second, budget=2e9)
        look = msgspec.structs.replace(look, hosts=(*look.hosts, other))
        state, decision = decide(state, look, float(second))
        if decision.kind != "stay":
            break
    assert (decision.kind, decision.host, decision.target) == ("move", 0, 1)
    assert 0.1 <= decision.share <= 0.9


def known(beta: float = 0.8, scale: float = 20.0) -> Estimates:
    """Estimates from jobs like that of `look_at`."""
    mean = {"rows_by_1e6_samples": math.log(rows_at(1e6, beta, scale)), "beta": math.log(beta)}
    return Estimates(mean, dict.fromkeys(mean, 0.05))


def test_with_estimates_an_exceeded_budget_is_predicted_at_once() -> None:
    """Half a minute before it. Without estimates a forecast does not reach that far after a few seconds."""
    budget = 0.45e9
    at_s = exceeds_at(budget)
    assert 20 < at_s < 60
    alarms = []
    for begun in (MemoryState(), begin(known())):
        state = begun
        for second in range(at_s):
            state, decision = decide(state, look_at(second, budget=budget), float(second))
            if decision.kind != "stay":
                alarms.append(second)
                break
    assert len(alarms) == 2 and alarms[1] < alarms[0]


def test_before_the_first_sample_the_whole_run_is_predicted() -> None:
    start = msgspec.structs.replace(look_at(0, total=10**7), samples_per_s=0.0)
    state, decision = decide(begin(known()), start, 0.0)
    assert decision.kind == "stay" and decision.exceeds_in_s is None
    median, high = predict(state, start, 1e7)
    truth = BASE + rows_at(1e7) * ROW
    assert median == pytest.approx(truth, rel=0.1)
    assert median < high < 1.5 * truth


@pytest.mark.parametrize("job", [known(0.5, 20_000.0), known(0.9, 1e-3)])
def test_observations_outweigh_estimates_from_a_different_job(job: Estimates) -> None:
    """The estimates predict far more growth, or almost none."""
    at_s = exceeds_at(2e9)
    state, alarm_s, total = begin(job), None, round(0.9 * RATE * at_s)
    for second in range(at_s):
        state, decision = decide(state, look_at(second, budget=2e9), float(second))
        if decision.kind != "stay":
            alarm_s = second
            break
    assert alarm_s is not None and 60 <= at_s - alarm_s < 0.9 * at_s
    state = begin(job)
    for second in range(round(0.85 * at_s)):
        state, decision = decide(state, look_at(second, budget=2e9, total=round(0.8 * total)), float(second))
        assert decision.kind == "stay"


def test_a_run_without_progress_never_exceeds_its_budget() -> None:
    look = msgspec.structs.replace(look_at(50, budget=0.5e9), samples_per_s=0.0)
    state = MemoryState()
    for second in range(1, 50):
        state, _ = decide(state, look_at(second, budget=0.5e9), float(second))
    _, decision = decide(state, look, 50.0)
    assert decision.exceeds_in_s is None


def test_workers_are_not_reduced_below_the_minimum_of_the_job() -> None:
    at_s = exceeds_at(2e9)
    facts: dict[str, Any] = {"possible": ("shrink",), "workers": 4, "worker_bytes": 50_000_000}
    seconds = range(at_s - 30, at_s)
    assert first(seconds, budget=2e9, least_workers=1, **facts)[1].workers < 3
    few = first(seconds, budget=2e9, least_workers=4, **facts)[1]
    assert few.kind == "warn"


def test_a_warning_is_repeated_once_a_minute() -> None:
    at_s = exceeds_at(2e9)
    found = [d for _, _, d in decisions(range(at_s - 200, at_s), budget=2e9, possible=())]
    warned = [d for d in found if d.kind == "warn"]
    assert len(warned) > 60
    assert sum(d.is_news for d in warned) == pytest.approx(len(warned) / 60, abs=1)
    assert "memory will not suffice in about" in warned[0].reason


def test_admit_after_is_doubled_up_to_a_bound() -> None:
    at_s = exceeds_at(2e9)
    seen = [first(range(at_s - 250, at_s), budget=2e9, possible=("admit",), admit_after=k)[1] for k in (1, 8, 64)]
    assert [(d.kind, d.admit_after) for d in seen] == [("admit", 2), ("admit", 16), ("warn", 1)]


def test_an_action_gets_time_before_the_next_one() -> None:
    at_s = exceeds_at(2e9)
    kinds = [(s, d.kind) for s, _, d in decisions(range(at_s - 100, at_s), budget=2e9, possible=("admit",))]
    acted = [second for second, kind in kinds if kind == "admit"]
    assert len(acted) >= 2
    assert min(later - earlier for earlier, later in itertools.pairwise(acted)) >= 5


def test_rows_are_not_dropped_if_other_memory_exceeds_the_budget() -> None:
    """A process took the memory. Dropping rows gives nothing back, it only stops the growth."""
    state, kinds = MemoryState(), set[str]()
    for second in range(1, 60):
        look = look_at(second, budget=1e9, new_ids_until=1)
        look = msgspec.structs.replace(look, hosts=(HostMemorySample(0, 10**9, 1_100_000_000, 1e6, 1.0),))
        state, decision = decide(state, look, float(second))
        kinds.add(decision.kind)
    assert kinds == {"stay", "warn"}


def test_a_horizon_that_is_too_short_is_lengthened_after_a_while() -> None:
    state, found = MemoryState(), list[MemoryDecision]()
    ages = tuple(min(1.0, edge / (RATE * 100)) * 100e6 for edge in AGE_EDGES)
    for second in range(100, 200):
        look = look_at(second, budget=2e9, horizon=100_000, live_bytes=20e6, ages=ages)
        look = msgspec.structs.replace(look, hosts=(HostMemorySample(0, 2 * 10**9, 300_000_000, 50e6, 1.0),))
        state, decision = decide(state, look, float(second))
        if decision.kind == "evict":
            found.append(decision)
            break
    assert found and found[0].horizon == round(LATE * 100_000)


def test_predict_returns_the_median_and_an_upper_bound() -> None:
    *_, (second, state, _) = decisions(range(1, 300), budget=4e9)
    look = look_at(second, budget=4e9)
    truth = BASE + rows_at(2 * look.samples) * ROW
    median, high = predict(state, look, 2 * look.samples)
    assert median == pytest.approx(truth, rel=0.1)
    assert median <= high
    assert predict(MemoryState(), look, 1e9) == (look.hosts[0].used_bytes,) * 2


# --- horizons ---------------------------------------------------------------------------------------------------------


def with_ages(live: float, own: float, *, samples: int, ages_from: int = 0) -> MemorySample:
    """A sample with rows of all ages up to `samples`, equally many of each age."""
    shares = [min(1.0, edge / samples) for edge in AGE_EDGES]
    return msgspec.structs.replace(
        look_at(samples // RATE),
        live_bytes=live + own,
        own_bytes=own,
        ages=tuple(share * live for share in shares),
        own_ages=tuple(share * own for share in shares),
        ages_from=ages_from,
    )


def test_counted_ages_determine_the_bytes_that_a_horizon_keeps() -> None:
    look = with_ages(1e9, 0.0, samples=10_000_000)
    growth = MemoryState().growth
    for horizon in (100_000, 1_000_000, 4_000_000):
        kept = kept_bytes(growth, look, horizon, shortens_own=False)
        assert kept == pytest.approx(1e9 * LATE * horizon / 10_000_000, rel=0.02)
    beyond = kept_bytes(growth, look, 40_000_000, shortens_own=False)
    assert 1e9 < beyond < 1e9 * 5


def test_tables_with_their_own_age_keep_it_unless_it_must_be_shorter() -> None:
    look = with_ages(1e9, 3e8, samples=10_000_000)
    growth = MemoryState().growth
    kept = kept_bytes(growth, look, 1_000_000, shortens_own=False)
    assert kept == pytest.approx(1e9 * 0.125 + 3e8, rel=0.02)
    assert kept_bytes(growth, look, 1_000_000, shortens_own=True) == pytest.approx(1.3e9 * 0.125, rel=0.02)


@given(budget=st.floats(1e8, 1e11), samples=st.integers(10**5, 10**8), own=st.floats(0, 1e9), shortens=st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_the_longest_horizon_fits_and_the_next_longer_does_not(
    budget: float, samples: int, own: float, shortens: bool
) -> None:
    look = with_ages(1e9, own, samples=samples)
    host = HostMemorySample(0, int(budget), int(0.5 * budget), 1e9 + own, 1.0)
    look = msgspec.structs.replace(look, hosts=(host,))
    growth = MemoryState().growth
    room = 0.45 * budget + 1e9 + own
    found = longest_horizon(growth, look, shortens_own=shortens)
    if found is None:
        assert kept_bytes(growth, look, look.least_horizon, shortens_own=shortens) * 1.1 > 0.99 * room
        return
    assert look.least_horizon <= found <= 1.1 * max(look.samples + look.samples_left, look.least_horizon)
    assert kept_bytes(growth, look, found, shortens_own=shortens) <= room
