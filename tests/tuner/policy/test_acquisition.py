"""The value of a trial: compared with simulation, and in limiting cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Observation, Predictions, as_array
from elastichost.tuner.policy.acquisition import DecisionCosts, best_known, values
from tests.effort import examples

STAKES = DecisionCosts(remaining_s=1000.0, moving_s=1.0, block_s=5.0, min_gain=0.0, most_cores=8)
BEST = Observation(Configuration(2, 1), 100.0, 0.01)


def expecting(samples_per_s: float, log_error: float) -> Predictions:
    wide = math.exp(1.645 * log_error)
    rate = np.array([samples_per_s])
    return Predictions(rate, np.array([log_error]), rate / wide, rate * wide, np.array([False]))


@settings(max_examples=examples(25), deadline=None)
@given(ratio=st.floats(0.3, 3.0), log_error=st.floats(0.02, 0.8))
def test_the_value_of_a_trial_agrees_with_simulation(ratio: float, log_error: float) -> None:
    found = values(as_array([Configuration(3, 1)]), expecting(100 * ratio, log_error), BEST, STAKES, 0.9)
    spread = math.hypot(log_error, BEST.log_error)
    d = math.log(ratio) + spread * np.random.default_rng(0).standard_normal(200_000)
    saved = np.maximum(0.0, 1 - np.exp(-d)).mean() * (STAKES.remaining_s - STAKES.block_s)
    lost = np.maximum(0.0, 1 - np.exp(d)).mean() * STAKES.block_s
    assert found.net_s[0] == pytest.approx(saved - lost - 2 * STAKES.moving_s, abs=3.0)
    assert found.sure[0] == pytest.approx((d > -math.log1p(-1.0 / 1000)).mean(), abs=0.01)
    assert found.holds[0] == pytest.approx((d > math.log(0.9)).mean(), abs=0.01)


@settings(max_examples=examples(25), deadline=None)
@given(ratio=st.floats(0.3, 3.0), log_error=st.floats(0.02, 0.8), most=st.floats(0.4, 2.5))
def test_the_value_with_a_speed_limit_agrees_with_simulation(ratio: float, log_error: float, most: float) -> None:
    # Exactly at the limit, rounding of a logarithm would decide.
    assume(not math.isclose(most, 0.9) and not math.isclose(most, 1000 / 999))
    exact = Observation(BEST.configuration, BEST.samples_per_s, 0.0)
    limit = np.array([100.0 * most])
    found = values(as_array([Configuration(3, 1)]), expecting(100 * ratio, log_error), exact, STAKES, 0.9, limit)
    d = math.log(ratio) + log_error * np.random.default_rng(0).standard_normal(200_000)
    d = np.minimum(d, math.log(most))
    saved = np.maximum(0.0, 1 - np.exp(-d)).mean() * (STAKES.remaining_s - STAKES.block_s)
    lost = np.maximum(0.0, 1 - np.exp(d)).mean() * STAKES.block_s
    assert found.net_s[0] == pytest.approx(saved - lost - 2 * STAKES.moving_s, abs=3.0)
    assert found.sure[0] == pytest.approx((d > -math.log1p(-1.0 / 1000)).mean(), abs=0.01)
    assert found.holds[0] == pytest.approx((d >= math.log(0.9)).mean(), abs=0.01)


def test_near_the_end_of_the_run_no_move_has_value() -> None:
    ending = DecisionCosts(remaining_s=1.0, moving_s=2.0, block_s=5.0, min_gain=0.0, most_cores=8)
    found = values(as_array([Configuration(4, 1)]), expecting(200.0, 0.05), BEST, ending, 0.9)
    assert found.net_s[0] < 0
    assert found.sure[0] == 0


def test_cores_have_a_price() -> None:
    """A configuration that is slightly faster with all cores is not better than one that is slightly slower with few
    cores."""
    priced = DecisionCosts(remaining_s=1000.0, moving_s=0.0, block_s=0.0, min_gain=0.1, most_cores=8)
    small, large = Observation(Configuration(1, 1), 100.0, 0.001), Observation(Configuration(6, 2), 103.0, 0.001)
    assert best_known((large, small), priced) == small
    assert best_known((large, small), STAKES) == large
    found = values(as_array([large.configuration]), expecting(103.0, 0.001), small, priced, 0.0)
    assert found.net_s[0] == pytest.approx(0.0, abs=1e-6)


def test_best_known_without_observations() -> None:
    with pytest.raises(ValueError, match="there are no observations"):
        best_known((), STAKES)


def test_wide_intervals_give_finite_values() -> None:
    found = values(as_array([Configuration(3, 1)] * 2), expecting(1e-12, 60.0), BEST, STAKES, 0.9)
    assert np.isfinite(found.net_s).all()
