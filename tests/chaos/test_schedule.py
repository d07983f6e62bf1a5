"""The plan of a chaos run is a function of its seed, and has no faults in calm stretches."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.chaos.schedule import plan_faults, plan_stretches, unit_draw

WEIGHTS = {"a": 3.0, "b": 1.0, "never": 0.0}


@given(st.floats(0.5, 10_000))
def test_stretches_fill_the_time_in_turns_and_a_fifth_is_calm(duration_s: float) -> None:
    stretches = plan_stretches(duration_s)
    assert stretches[0].start_s == 0
    assert stretches[-1].stop_s == pytest.approx(duration_s)
    for before, after in pairwise(stretches):
        assert before.stop_s == pytest.approx(after.start_s)
        assert before.is_calm != after.is_calm
    assert sum(one.stop_s - one.start_s for one in stretches if one.is_calm) == pytest.approx(duration_s / 5)


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.floats(5, 600), st.floats(0.1, 10))
def test_faults_come_in_order_and_only_in_faulty_stretches(seed: int, duration_s: float, every_s: float) -> None:
    stretches = plan_stretches(duration_s)
    planned = plan_faults(seed, stretches, every_s, WEIGHTS)
    assert planned == plan_faults(seed, stretches, every_s, WEIGHTS)
    assert [one.at_s for one in planned] == sorted(one.at_s for one in planned)
    for one in planned:
        assert any(not part.is_calm and part.start_s <= one.at_s < part.stop_s for part in stretches)
        assert one.kind in ("a", "b")
        assert 0 <= one.draw < 2**64


def test_gaps_between_faults_have_the_given_mean_and_kinds_have_their_shares() -> None:
    planned = plan_faults(7, plan_stretches(50_000), 2.0, WEIGHTS)
    assert len(planned) == pytest.approx(0.8 * 50_000 / 2.0, rel=0.03)
    assert sum(one.kind == "a" for one in planned) / len(planned) == pytest.approx(0.75, abs=0.02)


def test_another_seed_is_another_plan() -> None:
    stretches = plan_stretches(60)
    assert plan_faults(1, stretches, 2.0, WEIGHTS) != plan_faults(2, stretches, 2.0, WEIGHTS)


@pytest.mark.parametrize(("every_s", "weights"), [(0.0, WEIGHTS), (1.0, {}), (1.0, {"never": 0.0})])
def test_a_plan_without_a_gap_or_a_kind_is_refused(every_s: float, weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="faults need"):
        plan_faults(0, plan_stretches(10), every_s, weights)


@given(st.integers(0, 2**63), st.integers(0, 2**40))
def test_draws_lie_between_0_and_1(seed: int, counter: int) -> None:
    assert 0.0 <= unit_draw(seed, counter) < 1.0
