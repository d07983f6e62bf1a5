"""The fit of the growth recovers the law in streams that follow it, and copes with streams that do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.memory.growth import (
    GrowthPrior,
    GrowthState,
    RowForecast,
    chance_beyond,
    clipped,
    forecast,
    observe,
    quantile,
    slope,
)
from tests.effort import examples

ROW = 100.0


def heaps(beta: float, looks: int, *, scale: float = 50.0, step: int = 10_000, noise: float = 0.0) -> GrowthState:
    """The state for scale * n^beta rows after n samples, with a sample every `step`."""
    random, state, made = np.random.default_rng(5), GrowthState(), 0.0
    for number in range(1, looks + 1):
        n = number * step
        more = scale * (n**beta - (n - step) ** beta) * math.exp(noise * random.standard_normal())
        made += more
        state = observe(state, n, made * ROW, ROW)
    return state


@pytest.mark.parametrize("beta", [0.4, 0.6, 0.8, 0.95])
def test_the_exponent_is_recovered_and_the_forecast_is_right(beta: float) -> None:
    state = heaps(beta, 300, noise=0.1)
    assert slope(state)[0] == pytest.approx(beta, abs=0.08)
    for ahead in (1.1, 1.5, 2.0):
        n = 3e6
        truth = 50.0 * ((ahead * n) ** beta - n**beta) * ROW
        found = forecast(state, ahead * n)
        assert found is not None
        assert found.median == pytest.approx(truth, rel=0.1)
        assert quantile(found, 0.05) < truth < quantile(found, 0.95)


@given(
    samples=st.integers(1, 10**15),
    errors=st.tuples(st.floats(0.01, 3.0), st.floats(0.01, 1.0)),
    ahead=st.integers(0, 10**12),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_prior_of_long_ago_gives_a_finite_forecast(samples: int, errors: tuple[float, float], ahead: int) -> None:
    """Rows are restored late in a long run: the prior is all that is known, and it tells of much fewer samples."""
    state = GrowthState(prior=GrowthPrior(-2.0, errors[0], 0.7, errors[1]))
    for made in (2e9, 1e9):  # fewer than before
        state = observe(state, samples, made, ROW)
    found = forecast(state, samples + ahead)
    assert found is not None
    assert 0.0 <= found.median <= found.most < math.inf


@given(
    steps=st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=2, max_size=60),
    ahead=st.integers(0, 10**8),
)
@settings(max_examples=examples(200), deadline=None)
def test_for_any_stream_a_forecast_is_finite_and_below_its_bound(steps: list[tuple[int, int]], ahead: int) -> None:
    state, n, made = GrowthState(), 0, 0.0
    for samples, rows in steps:
        n, made = n + samples, made + rows * ROW
        state = observe(state, n, made, ROW)
    found = forecast(state, n + ahead)
    assert found is not None
    assert 0 <= found.median <= found.most < math.inf
    assert 0 <= quantile(found, 0.95) <= found.most
    assert quantile(found, 0.05) <= found.median <= quantile(found, 0.95) * (1 + 1e-9)
    assert 0 <= chance_beyond(found, 1.0) <= 1


@given(looks=st.integers(2, 2000))
@settings(max_examples=examples(20), deadline=None)
def test_points_stay_few_and_the_first_and_the_last_stay(looks: int) -> None:
    state = heaps(0.7, looks)
    assert len(state.points) <= 2 + 5 * math.log(looks + 1) / math.log(1.2)
    assert state.points[0][0] == 10_000 and state.points[-1][0] == looks * 10_000


def test_no_forecast_without_observations_and_a_falling_count_restarts() -> None:
    assert forecast(GrowthState(), 100) is None
    state = observe(GrowthState(), 1000, 5e6, ROW)
    assert forecast(state, 2000) is None
    assert observe(state, 1000, 5e6, ROW) == state
    state = observe(state, 2000, 6e6, ROW)
    assert forecast(state, 3000) is not None
    assert forecast(observe(state, 3000, 1e6, ROW), 4000) is None


def test_wrong_forecasts_widen_the_next_ones() -> None:
    """Rates jump up and down in turn. The fit treats that as scatter; the scores measure its size."""
    calm, wild = heaps(0.7, 400), heaps(0.7, 400, noise=1.2)
    narrow, wide = forecast(calm, 5e6), forecast(wild, 5e6)
    assert narrow is not None and wide is not None
    assert wide.log_error > 3 * narrow.log_error
    assert all(len(scores) <= 24 for scores in wild.scores)
    assert any(scores for scores in wild.scores)


def test_a_burst_soon_changes_the_forecast() -> None:
    state = heaps(0.6, 200)
    n, made = state.points[-1]
    before = forecast(state, 1.2 * n)
    rate = 8 * 0.6 * 50.0 * n**-0.4 * ROW
    for _ in range(5):
        n, made = n + 10_000, made + rate * 10_000
        state = observe(state, int(n), made, ROW)
    after = forecast(state, 1.2 * n)
    assert before is not None and after is not None
    assert quantile(after, 0.95) > 2 * quantile(before, 0.95)


def test_probabilities_agree_with_the_quantiles() -> None:
    found = RowForecast(median=100.0, log_error=0.3, most=1e9)
    for probability in (0.1, 0.5, 0.9):
        assert chance_beyond(found, quantile(found, probability)) == pytest.approx(1 - probability)
    assert chance_beyond(found, 2e9) == 0.0
    assert chance_beyond(found, -1) == 1.0
    assert chance_beyond(RowForecast(0.0, 0.3, 0.0), -1) == 0.0, "no rows are made"


def test_new_ids_end_where_the_data_repeat() -> None:
    assert clipped(500.0, 0) == 500.0
    assert clipped(500.0, 300) == 300.0
    assert clipped(200.0, 300) == 200.0
