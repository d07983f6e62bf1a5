"""The growth of one run is the prior of the next one, until its observations contradict it."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.history.features import Estimates
from elastichost.tuner.memory.growth import (
    PIVOT,
    PRIOR_BETA,
    GrowthState,
    forecast,
    is_foreknown,
    observe,
    quantile,
    slope,
)
from elastichost.tuner.memory.prior import BETA, GROWTH_BYTES, ROW_BYTES, ROWS, learnt, prior_of, widened
from tests.effort import examples

ROW = 150.0
SCALE = 40.0


def grown(
    beta: float,
    looks: int,
    *,
    scale: float = SCALE,
    step: int = 20_000,
    begin: GrowthState | None = None,
    seed: int = 5,
) -> GrowthState:
    """The state for scale * n^beta rows after n samples, with noise and a sample every `step`."""
    random, state, made = np.random.default_rng(seed), begin or GrowthState(), 0.0
    for number in range(1, looks + 1):
        n = number * step
        more = scale * (n**beta - (n - step) ** beta) * math.exp(0.1 * random.standard_normal())
        made += more
        state = observe(state, n, made * ROW, ROW)
    return state


def after(beta: float, looks: int = 300, **facts: float) -> GrowthState:
    """The first state of a job after another job with this growth."""
    prior = prior_of(learnt(grown(beta, looks, **facts)))  # type: ignore[arg-type]
    assert prior is not None
    return GrowthState(prior=prior)


def test_estimates_of_a_run_are_less_certain_the_earlier_it_ended() -> None:
    whole = learnt(grown(0.7, 100))
    sds = [widened(whole, share).sd for share in (1.0, 0.5, 0.1, 0.0)]
    for name in (ROWS, BETA):
        assert whole.sd[name] < sds[0][name] <= sds[1][name] < sds[2][name] < sds[3][name] < 1.0, name
    assert all(sd[ROW_BYTES] == whole.sd[ROW_BYTES] for sd in sds), "the bytes of a row were measured"
    assert widened(whole, 0.1).mean == whole.mean and prior_of(widened(whole, 0.0)) is not None
    assert widened(Estimates(), 0.5) == Estimates()


@pytest.mark.parametrize("seed", range(4))
def test_the_whole_growth_is_within_the_widened_errors_of_its_beginning(seed: int) -> None:
    """The exponent falls from 0.9 to 0.6. After twelve times the samples the result is within three standard
    deviations."""
    random, state, made, states = np.random.default_rng(seed), GrowthState(), 0.0, []
    for number in range(1, 301):
        beta = 0.9 - 0.3 * number / 300
        made += SCALE * beta * (20_000 * number) ** (beta - 1) * 20_000 * math.exp(0.1 * random.standard_normal())
        state = observe(state, number * 20_000, made * ROW, ROW)
        states.append(state)
    early, whole = learnt(states[24]), learnt(states[-1])
    wide = widened(early, 25 / 300)
    for name in (ROWS, BETA):
        assert abs(whole.mean[name] - early.mean[name]) < 3 * wide.sd[name], name
    assert abs(whole.mean[ROWS] - early.mean[ROWS]) > 3 * early.sd[ROWS], (
        "without the widening the errors are too small"
    )


@pytest.mark.parametrize("beta", [0.4, 0.65, 0.9])
@pytest.mark.parametrize("looks", [12, 300])
def test_k_beta_and_the_bytes_of_a_row_are_estimated(beta: float, looks: int) -> None:
    state = grown(beta, looks)
    found = learnt(state, state.points[-1][1])
    assert math.exp(found.mean[BETA]) == pytest.approx(beta, abs=0.05)
    assert math.exp(found.mean[ROW_BYTES]) == pytest.approx(ROW)
    n = looks * 20_000
    assert math.exp(found.mean[GROWTH_BYTES]) == pytest.approx(SCALE * n**beta * ROW, rel=0.1)
    truth = math.log(SCALE * PIVOT**beta)
    assert abs(found.mean[ROWS] - truth) < 2.5 * found.sd[ROWS]
    assert set(found.sd) == set(found.mean)


def test_a_run_with_memory_actions_gives_its_law_but_not_its_size() -> None:
    found = learnt(grown(0.7, 100))
    assert set(found.mean) == {ROWS, BETA, ROW_BYTES}


def test_too_few_observations_give_no_estimates() -> None:
    assert learnt(GrowthState()) == Estimates()
    state = observe(GrowthState(), 1000, 0.0, ROW)
    assert learnt(state) == Estimates()
    state = observe(GrowthState(), 10**7, 1e9, ROW)
    for number in range(1, 9):
        state = observe(state, 10**7 + number * 10**5, 1e9 + number * 1e6, ROW)
    assert set(learnt(state, 1e9).mean) == {GROWTH_BYTES}, "a small range of samples determines no exponent"


@pytest.mark.parametrize("beta", [0.45, 0.8])
def test_the_prior_forecasts_the_whole_run_before_any_observation(beta: float) -> None:
    state = observe(after(beta), 0, 0.0, ROW)
    assert is_foreknown(state)
    found = forecast(state, 6e6)
    truth = SCALE * 6e6**beta * ROW
    assert found is not None
    assert found.median == pytest.approx(truth, rel=0.25)
    assert quantile(found, 0.05) < truth < quantile(found, 0.95)
    cold = forecast(observe(GrowthState(), 0, 0.0, ROW), 6e6)
    assert cold is None


@pytest.mark.parametrize("beta", [0.45, 0.8])
def test_early_forecasts_are_better_with_a_prior(beta: float) -> None:
    """After ten of a thousand samples of a run."""
    truth = SCALE * (2e7**beta - 2e5**beta) * ROW
    errors = {}
    for name, begin in (("warm", after(beta)), ("cold", GrowthState())):
        found = forecast(grown(beta, 10, begin=begin, seed=8), 2e7)
        assert found is not None
        errors[name] = abs(math.log(found.median / truth))
    assert errors["warm"] < 0.15
    assert errors["warm"] < errors["cold"]


@pytest.mark.parametrize("factor", [0.1, 8.0])
def test_observations_outweigh_a_wrong_history(factor: float) -> None:
    wrong = after(0.8, scale=factor * SCALE)
    state = grown(0.5, 100, begin=wrong)
    assert not is_foreknown(state)
    alone = grown(0.5, 100)
    assert slope(state)[0] == pytest.approx(slope(alone)[0], abs=0.1)
    found, without = forecast(state, 4e6), forecast(alone, 4e6)
    assert found is not None and without is not None
    assert found.median == pytest.approx(without.median, rel=0.1)


def test_a_restarted_state_keeps_its_prior() -> None:
    begin = after(0.6)
    state = observe(grown(0.6, 5, begin=begin), 10, 5.0, ROW)
    assert state.prior == begin.prior
    assert is_foreknown(state) and len(state.points) == 1


@pytest.mark.parametrize(
    "odd",
    [
        Estimates(),
        Estimates({GROWTH_BYTES: 20.0}, {GROWTH_BYTES: 0.1}),
        Estimates({ROWS: 10.0}, {ROWS: 0.1}),
        Estimates({ROWS: math.nan, BETA: -0.5}, {ROWS: 0.1, BETA: 0.1}),
        Estimates({ROWS: 10.0, BETA: -0.5}, {ROWS: 0.1}),
        Estimates({ROWS: 10.0, BETA: 9.0}, {ROWS: 0.1, BETA: 0.1}),
        Estimates({ROWS: 10.0, BETA: -0.5}, {ROWS: 50.0, BETA: 0.1}),
        Estimates({ROWS: 10.0, BETA: -0.5}, {ROWS: 0.0, BETA: 0.1}),
    ],
)
def test_unusable_estimates_give_no_prior(odd: Estimates) -> None:
    assert prior_of(odd) is None


@given(
    rows=st.floats(-5, 30),
    beta=st.floats(0.02, 1.0),
    errors=st.tuples(st.floats(0.01, 2.0), st.floats(0.01, 1.0)),
    steps=st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), max_size=30),
    ahead=st.integers(0, 10**8),
)
@settings(max_examples=examples(200), deadline=None)
def test_for_any_prior_and_observations_a_forecast_is_finite(
    rows: float, beta: float, errors: tuple[float, float], steps: list[tuple[int, int]], ahead: int
) -> None:
    prior = prior_of(Estimates({ROWS: rows, BETA: math.log(beta)}, {ROWS: errors[0], BETA: errors[1]}))
    assert prior is not None
    state, n, made = observe(GrowthState(prior=prior), 0, 0.0, ROW), 0, 0.0
    for samples, count in steps:
        n, made = n + samples, made + count * ROW
        state = observe(state, n, made, ROW)
    found = forecast(state, n + ahead)
    assert found is not None and state.fit is not None
    assert 0 <= state.fit.trust <= 1
    assert 0 <= found.median <= found.most < math.inf
    assert 0 <= quantile(found, 0.05) <= quantile(found, 0.95) <= found.most
    assert msgspec.json.decode(msgspec.json.encode(state), type=GrowthState) == state


def test_without_a_history_the_slope_is_the_documented_one() -> None:
    assert slope(GrowthState())[0] == PRIOR_BETA
