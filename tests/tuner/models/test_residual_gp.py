"""Corrections of a model by measurements: exact at measured configurations, without effect far away."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.base import Fit
from elastichost.tuner.models.registry import fit
from elastichost.tuner.models.residual_gp import LEAST_WEIGHT, likeness, surface, weights_of
from tests.effort import examples

JOB = Workload(batch_size=1000, host_cores=16)
FULL = np.ones(4)
numbers = st.tuples(st.integers(1, 64), st.integers(1, 16), st.integers(1, 8), st.integers(1, 8))


def seen_at(configuration: Configuration, off: float = 0.0, log_error: float = 0.01) -> Observation:
    """The speed depends on the workers only. off: an additional log speed that the model does not contain."""
    speed = 20_000.0 * configuration.workers / (1 + 0.02 * configuration.workers)
    timed = JOB.batch_size * configuration.workers / speed
    return Observation(configuration, speed * math.exp(off), log_error, 5.0, 100, compute_s=timed, server_cpu_s=1e-5)


def fitted_to(observations: list[Observation]) -> Fit:
    return fit("elastichost", JOB, observations)


SEEN = [seen_at(Configuration(workers, 1)) for workers in (2, 4, 8, 16)]


@given(rows=st.lists(numbers, min_size=1, max_size=8, unique=True), weight=st.floats(0.0, 1.0))
def test_likeness_is_a_correlation(rows: list[tuple[int, int, int, int]], weight: float) -> None:
    array = np.array(rows, dtype=np.float64)
    alike = likeness(array, array, np.array([1.0, weight, 1.0, 1.0]))
    assert np.allclose(np.diag(alike), 1.0)
    assert np.allclose(alike, alike.T)
    assert np.linalg.eigvalsh(alike).min() > -1e-9
    assert (alike > 0).all() and (alike <= 1 + 1e-12).all()


def test_likeness_decreases_with_distance() -> None:
    row = likeness(as_array([Configuration(2, 1)]), as_array([Configuration(w, 1) for w in (2, 3, 4, 8, 32)]), FULL)[0]
    assert (np.diff(row) < 0).all()
    assert row[-1] < 0.01


def test_a_number_without_effect_has_a_small_weight() -> None:
    weights = weights_of(fitted_to(SEEN), as_array([Configuration(8, 1)]), None)
    assert weights[0] == 1.0
    assert weights[1] == LEAST_WEIGHT
    pair = likeness(as_array([Configuration(8, 1)]), as_array([Configuration(8, 2), Configuration(4, 1)]), weights)[0]
    assert pair[0] > 0.95 > 0.5 > pair[1]


def test_predictions_at_measured_configurations_have_the_errors_of_measurements() -> None:
    odd = [*SEEN[:-1], seen_at(Configuration(16, 1), off=-0.15, log_error=0.005)]
    ground = surface(fitted_to(odd), odd, None)
    told = ground.at(ground.seen)
    for one, other in zip(msgspec.structs.astuple(told), msgspec.structs.astuple(ground.at_seen()), strict=True):
        np.testing.assert_array_equal(one, other)
    speeds = np.array([one.samples_per_s for one in odd])
    assert np.abs(np.log(told.samples_per_s / speeds)).max() < 0.02
    assert (told.log_error <= [one.log_error * 1.01 for one in odd]).all()


def test_noise_of_one_measurement_is_mostly_removed() -> None:
    """Of two neighbours, the one with a lucky measurement is predicted to be hardly faster."""
    lucky = [*SEEN, seen_at(Configuration(15, 1), off=0.3, log_error=0.3)]
    ground = surface(fitted_to(lucky), lucky, None)
    told = ground.at(as_array([Configuration(16, 1), Configuration(15, 1)])).samples_per_s
    assert told[1] < 1.02 * told[0]


def test_far_from_measurements_the_prediction_is_the_model() -> None:
    odd = [*SEEN[:-1], seen_at(Configuration(16, 1), off=-0.15)]
    fitted = fitted_to(odd)
    ground = surface(fitted, odd, None)
    far = as_array([Configuration(1, 1, 8, 8)])
    assert ground.at(far).samples_per_s[0] == pytest.approx(fitted.predict(far).samples_per_s[0], rel=0.03)
    assert ground.at(far).log_error[0] >= 0.9 * fitted.predict(far).log_error[0]


@settings(max_examples=examples(20), deadline=None)
@given(rows=st.lists(numbers, min_size=2, max_size=6, unique=True), beside=st.integers(0, 3))
def test_a_difference_has_a_smaller_error_than_both_speeds(rows: list[tuple[int, int, int, int]], beside: int) -> None:
    ground = surface(fitted_to(SEEN), SEEN, None)
    array = np.concatenate([ground.seen[[beside]], np.array(rows, dtype=np.float64)])
    apart, alone = ground.at(array, beside).log_error, ground.at(array).log_error
    assert apart[0] == pytest.approx(0.0, abs=1e-6)
    assert (apart <= alone + alone[0] + 1e-9).all()
    neighbour = ground.seen[[beside]] + np.array([[1.0, 0.0, 0.0, 0.0]])
    assert ground.at(neighbour, beside).log_error[0] < math.sqrt(2) * ground.at(neighbour).log_error[0] + 1e-9


def test_a_wrong_model_gets_larger_errors() -> None:
    rough = [seen_at(one.configuration, off=0.4 * (-1) ** index) for index, one in enumerate(SEEN)]
    assert surface(fitted_to(SEEN), SEEN, None).scale == pytest.approx(1.0)
    errs = surface(fitted_to(SEEN), rough, None)  # the model was fitted to other observations
    assert errs.scale > 1.3
    other = as_array([Configuration(1, 1, 4)])
    assert errs.at(other).log_error[0] > surface(fitted_to(SEEN), SEEN, None).at(other).log_error[0]


def test_the_order_of_observations_does_not_matter() -> None:
    other = as_array([Configuration(6, 2), Configuration(12, 1, 2)])
    fitted = fitted_to(SEEN)
    there, back = (surface(fitted, one, None).at(other) for one in (SEEN, SEEN[::-1]))
    for name in msgspec.structs.fields(there):
        assert np.allclose(getattr(there, name.name), getattr(back, name.name))


@given(rows=st.lists(numbers, min_size=1, max_size=8, unique=True))
def test_unfamiliarity_is_0_at_measurements_and_at_most_1(rows: list[tuple[int, ...]]) -> None:
    ground = surface(fitted_to(SEEN), SEEN, None)
    assert ground.around(ground.seen).unfamiliar == pytest.approx(0.0)
    found = ground.around(np.array(rows, dtype=np.float64)).unfamiliar
    assert ((found >= 0.0) & (found <= 1.0)).all()


def test_unfamiliarity_grows_with_the_distance_to_measurements() -> None:
    ground = surface(fitted_to(SEEN), SEEN, None)
    found = ground.around(as_array([Configuration(workers, 1) for workers in (16, 20, 32, 64)])).unfamiliar
    assert (np.diff(found) > 0).all()
