"""Sums of columns: the coefficients, the rank, and extrapolated configurations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Workload, as_array
from elastichost.tuner.models.linear import UNKNOWN, fit_columns
from tests.effort import examples

ASYNC, SYNC = Workload(1000), Workload(1000, "sync")


def columns(workload: Workload, configurations: ConfigurationArray) -> Mapping[str, np.ndarray]:
    workers, servers = configurations[:, 0], configurations[:, 1]
    return {"constant": np.ones_like(workers), "workers": workers, "per_server": workers / servers}


def observed(workload: Workload, seconds: Mapping[Configuration, float], error: float = 0.01) -> list[Observation]:
    return [
        Observation(one, workload.batch_size * (1 if workload.mode == "sync" else one.workers) / took_s, error)
        for one, took_s in seconds.items()
    ]


def times(a: float, b: float, c: float, tried: list[Configuration]) -> dict[Configuration, float]:
    return {one: a + b * one.workers + c * one.workers / one.servers for one in tried}


TRIED = [Configuration(1, 1), Configuration(4, 1), Configuration(4, 4), Configuration(16, 2), Configuration(2, 2)]


@pytest.mark.parametrize("workload", [ASYNC, SYNC])
def test_the_coefficients_of_generated_data_are_recovered(workload: Workload) -> None:
    fitted = fit_columns("sum", columns, workload, observed(workload, times(0.02, 0.001, 0.005, TRIED)))
    assert fitted.parameters == pytest.approx({"constant": 0.02, "workers": 0.001, "per_server": 0.005})
    assert (fitted.rank, fitted.parameters_total, fitted.observations, fitted.configurations) == (3, 3, 5, 5)
    unseen = Configuration(32, 8)
    found = fitted.predict(as_array([unseen]))
    expected = observed(workload, times(0.02, 0.001, 0.005, [unseen]))[0].samples_per_s
    assert found.samples_per_s[0] == pytest.approx(expected)
    assert found.low[0] < expected < found.high[0] and not found.is_extrapolated[0]


def test_coefficients_are_not_negative_and_errors_are_relative() -> None:
    falling = {Configuration(1, 1): 1.0, Configuration(2, 1): 0.5, Configuration(4, 1): 0.25}
    fitted = fit_columns("sum", columns, ASYNC, observed(ASYNC, falling))
    assert min(fitted.parameters.values()) >= 0.0
    # for a single constant the relative errors are least at sum(1 / T) / sum(1 / T^2)
    assert fitted.parameters["constant"] == pytest.approx((1 + 2 + 4) / (1 + 4 + 16))


def test_a_candidate_in_an_unobserved_direction_is_extrapolated() -> None:
    fitted = fit_columns("sum", columns, ASYNC, observed(ASYNC, times(0.02, 0.001, 0.005, TRIED[:2])))
    assert fitted.rank == 2
    found = fitted.predict(as_array([Configuration(9, 1), Configuration(9, 3)]))
    assert list(found.is_extrapolated) == [False, True]
    assert found.log_error[1] == UNKNOWN > 10 * found.log_error[0]


def test_without_observations_everything_is_extrapolated() -> None:
    fitted = fit_columns("sum", columns, ASYNC, [])
    found = fitted.predict(as_array(TRIED))
    assert found.is_extrapolated.all() and (found.samples_per_s > 0).all()
    assert (fitted.rank, fitted.confidence, fitted.posterior().mean) == (0, 0.0, {})


@settings(deadline=None, max_examples=examples(60))
@given(
    seen=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 20), st.floats(1e-3, 1e9), st.floats(0.0, 1.0)),
        min_size=1,
        max_size=8,
    ),
    workload=st.sampled_from([ASYNC, SYNC]),
)
def test_every_valid_observation_can_be_fitted(seen: list[tuple[int, int, float, float]], workload: Workload) -> None:
    made = [Observation(Configuration(w, p), speed, error) for w, p, speed, error in seen]
    fitted = fit_columns("sum", columns, workload, made)
    found = fitted.predict(as_array(TRIED))
    for column in (found.samples_per_s, found.low, found.high, found.log_error):
        assert np.isfinite(column).all() and (column >= 0).all()
    assert 1 <= fitted.rank <= 3 and 0.0 <= fitted.confidence <= 1.0
    # an observed configuration is never extrapolated
    assert not fitted.predict(as_array([one.configuration for one in made])).is_extrapolated.any()
