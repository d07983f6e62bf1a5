"""Estimates compared with closed forms, intervals compared with refits."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.models.least_squares import (
    OUTLYING,
    TRANSFERRED,
    Belief,
    Estimate,
    Rows,
    estimate,
    predictive_factor,
    rank_of,
)
from tests.effort import examples

ONE_KIND = np.array([0.05])


def rows(logs: np.ndarray, error: float, groups: np.ndarray | None = None, kinds: np.ndarray | None = None) -> Rows:
    count = len(logs)
    return Rows(
        log=logs,
        error=np.full(count, error),
        kind=np.zeros(count, dtype=np.int64) if kinds is None else kinds,
        group=np.arange(count) if groups is None else groups,
        discrepancy=ONE_KIND if kinds is None else np.full(int(kinds.max()) + 1, 0.05),
    )


def belief(mean: np.ndarray, sd: float | np.ndarray, *, is_transferred: bool = False) -> Belief:
    return Belief(mean, np.broadcast_to(sd, mean.shape).astype(np.float64), np.full(len(mean), is_transferred))


def linear(design: np.ndarray, logs: np.ndarray, error: float, sd: float = 10.0) -> Estimate:
    k = design.shape[1]
    return estimate(lambda theta: (design @ theta, design), rows(logs, error), belief(np.zeros(k), sd))


@settings(deadline=None, max_examples=examples(30))
@given(seed=st.integers(0, 10_000))
def test_a_linear_model_with_small_residuals_is_ridge_regression(seed: int) -> None:
    generator = np.random.default_rng(seed)
    design = generator.normal(size=(30, 4))
    logs = design @ np.array([1.0, -2.0, 0.5, 0.0]) + 1e-4 * generator.normal(size=30)
    found = linear(design, logs, error=0.5, sd=2.0)
    # the loss is quadratic for residuals far below their spread
    weight = 1.0 / (0.5**2 + found.discrepancy[0] ** 2)
    information = weight * design.T @ design
    covariance = np.linalg.inv(information + np.eye(4) / 4.0)
    np.testing.assert_allclose(found.theta, covariance @ (weight * design.T @ logs), atol=2e-3)
    np.testing.assert_allclose(found.covariance, covariance, rtol=0.01, atol=1e-4)
    np.testing.assert_allclose(found.information, information, rtol=0.01, atol=0.1)


def test_a_curved_model_finds_its_parameters() -> None:
    """The model log(a + b x), whose derivatives depend on the parameters."""
    x = np.linspace(0.1, 30.0, 15)

    def model(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        a, b = np.exp(theta[0]), np.exp(theta[1]) * x
        return np.log(a + b), np.column_stack([a / (a + b), b / (a + b)])

    truth = np.log([5.0, 0.3])
    found = estimate(model, rows(model(truth)[0], 0.01), belief(np.log([0.1, 10.0]), 3.0))
    np.testing.assert_allclose(found.theta, truth, atol=0.02)


def test_one_outlier_changes_little() -> None:
    generator = np.random.default_rng(0)
    design = np.column_stack([np.ones(20), np.linspace(-1, 1, 20)])
    logs = design @ np.array([1.0, 0.5]) + 0.02 * generator.normal(size=20)
    wild = logs.copy()
    wild[19] += 3.0
    clean, found = linear(design, logs, 0.02), linear(design, wild, 0.02)
    plain = np.linalg.lstsq(design, wild, rcond=None)[0]
    assert np.abs(found.theta - clean.theta).max() < 0.1 < 0.3 < np.abs(plain - clean.theta).max()
    assert found.weights[19] < 0.1 < 0.6 < found.weights[:19].min()


def test_without_rows_the_estimate_is_the_prior() -> None:
    mean, sd = np.array([1.0, 2.0]), np.array([0.5, 3.0])
    empty = rows(np.zeros(0), 0.1)
    found = estimate(lambda theta: (np.zeros(0), np.zeros((0, 2))), empty, belief(mean, sd))
    np.testing.assert_array_equal(found.theta, mean)
    np.testing.assert_allclose(found.covariance, np.diag(sd**2))
    assert rank_of(found) == 0
    assert predictive_factor(found, empty, kind=0, transfer=2.0) == 2.0


@pytest.mark.parametrize("spread", [0.05, 0.2])
def test_the_discrepancy_is_estimated_for_each_kind(spread: float) -> None:
    generator = np.random.default_rng(3)
    design = np.repeat(np.eye(2), 200, axis=0)
    kinds = np.repeat([0, 1], 200)
    logs = design @ np.array([1.0, 2.0]) + np.where(kinds == 1, spread, 0.04) * generator.normal(size=400)
    measured = rows(logs, 0.0, kinds=kinds)
    found = estimate(lambda theta: (design @ theta, design), measured, belief(np.zeros(2), 10.0))
    assert found.discrepancy[0] == pytest.approx(0.04, rel=0.25)
    assert found.discrepancy[1] == pytest.approx(spread, rel=0.25)


def test_data_outweigh_a_transferred_prior_but_not_another_prior() -> None:
    design = np.ones((10, 1))
    wrong = np.array([3.0])
    believed = estimate(lambda t: (design @ t, design), rows(np.zeros(10), 0.1), belief(wrong, 0.05))
    doubted = estimate(
        lambda t: (design @ t, design), rows(np.zeros(10), 0.1), belief(wrong, 0.05, is_transferred=True)
    )
    assert believed.theta[0] > 1.0 > 0.1 > abs(doubted.theta[0])
    # a contradicted prior does not reduce the errors
    assert doubted.covariance[0, 0] == pytest.approx(1.0 / doubted.information[0, 0], rel=0.05)
    near = estimate(
        lambda t: (design @ t, design), rows(np.full(10, 3.02), 0.1), belief(wrong, 0.05, is_transferred=True)
    )
    assert near.covariance[0, 0] < 0.8 / near.information[0, 0]


@given(st.integers(1, 5))
def test_rank_is_the_number_of_observed_directions(directions: int) -> None:
    generator = np.random.default_rng(directions)
    design = generator.normal(size=(20, directions)) @ generator.normal(size=(directions, 5))
    assert rank_of(linear(design, design @ np.ones(5), 0.05)) == directions


def test_leaving_a_configuration_out_is_the_same_as_refitting_without_it() -> None:
    """With a quadratic loss the scores are those of refits."""
    generator = np.random.default_rng(1)
    design = np.column_stack([np.ones(8), np.arange(8.0)])
    groups = np.array([0, 0, 1, 2, 3, 4, 5, 6])
    logs = design @ np.array([0.3, 0.1]) + 0.02 * generator.normal(size=8)
    logs[7] += 0.5  # an outlier that pulls the line; a fit without it misses it by nearly twice as much
    measured = rows(logs, 0.5, groups)
    prior_sd = np.full(2, 4.0)
    found = estimate(lambda theta: (design @ theta, design), measured, belief(np.zeros(2), prior_sd))
    spread, scores = found.spread[0], []
    for group in range(7):
        kept = groups != group
        inverse = np.linalg.inv(design[kept].T @ design[kept] / spread**2 + np.diag(prior_sd**-2.0))
        theta = inverse @ design[kept].T @ logs[kept] / spread**2
        left = design[~kept]
        deviation = np.sqrt(spread**2 + np.einsum("ij,jk,ik->i", left, inverse, left))
        scores.extend(np.abs(logs[~kept] - left @ theta) / deviation)
    assert max(scores) < OUTLYING, "no score is cut"
    expected = np.sqrt((TRANSFERRED + np.square(scores).sum()) / (TRANSFERRED + len(scores)))
    assert predictive_factor(found, measured, kind=0, transfer=1.0) == pytest.approx(expected, rel=0.02)


def test_one_configuration_says_nothing_about_errors_of_predictions() -> None:
    """The fit passes through it, so the errors on other jobs count alone."""
    design = np.ones((3, 1))
    measured = rows(np.array([0.1, 0.0, -0.1]), 0.05, np.zeros(3, dtype=np.int64))
    found = estimate(lambda theta: (design @ theta, design), measured, belief(np.zeros(1), 10.0))
    assert predictive_factor(found, measured, kind=0, transfer=2.5) == pytest.approx(2.5)


def test_intervals_widen_when_left_out_configurations_are_missed() -> None:
    generator = np.random.default_rng(2)
    design = np.column_stack([np.ones(12), np.linspace(-1, 1, 12)])
    logs = design @ np.array([0.3, 0.1]) + generator.choice([-1.0, 1.0], 12) * 0.3
    measured = rows(logs, 0.001)
    measured = msgspec.structs.replace(measured, discrepancy=np.array([0.03]))
    found = estimate(lambda theta: (design @ theta, design), measured, belief(np.zeros(2), 10.0))
    assert predictive_factor(found, measured, kind=0, transfer=1.0) > 1.0


def test_calibrated_intervals_do_not_change() -> None:
    """With many configurations and normal residuals, nine of ten new values are inside the interval, with and without
    the factor."""
    generator = np.random.default_rng(4)
    inside, factors = [], []
    for _ in range(5):
        design = np.column_stack([np.ones(200), generator.normal(size=(200, 2))])
        logs = design @ np.array([1.0, 0.5, -0.3]) + 0.08 * generator.normal(size=200)
        measured = msgspec.structs.replace(rows(logs, 0.02), discrepancy=np.array([0.08]))
        found = estimate(lambda theta, x=design: (x @ theta, x), measured, belief(np.zeros(3), 10.0))
        factors.append(predictive_factor(found, measured, kind=0, transfer=2.5))
        new = np.column_stack([np.ones(1000), generator.normal(size=(1000, 2))])
        truth = new @ np.array([1.0, 0.5, -0.3]) + 0.08 * generator.normal(size=1000)
        deviation = np.sqrt(np.einsum("ij,jk,ik->i", new, found.covariance, new) + found.discrepancy[0] ** 2)
        inside.append(np.mean(np.abs(truth - new @ found.theta) < 1.645 * factors[-1] * deviation))
    assert np.mean(factors) == pytest.approx(1.0, abs=0.12)
    assert 0.86 < np.mean(inside) < 0.94
