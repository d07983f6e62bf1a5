"""The metrics against brute-force computation."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.errors import NonFiniteError
from elastichost.quality.binary import (
    auc,
    calibration,
    evaluate,
    evaluate_labels,
    log_loss_from_logits,
    normalised_entropy,
    probabilities,
)

Floats = npt.NDArray[np.float64]
# Few distinct scores, so that there are ties. Two of them are extreme.
SAMPLES = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([-1e30, -2.0, -0.5, 0.0, 0.5, 3.0, 1e30]), st.floats(0.0, 10.0)),
    min_size=1,
    max_size=30,
)


def columns(samples: list[tuple[int, float, float]]) -> tuple[Floats, npt.NDArray[np.float32], Floats]:
    """Labels, scores and weights as arrays."""
    labels, scores, weights = zip(*samples, strict=True)
    return np.array(labels, dtype=float), np.array(scores, dtype=np.float32), np.array(weights, dtype=float)


def auc_by_pairs(labels: Floats, scores: npt.NDArray[np.float32], weights: Floats) -> float:
    """The weighted share of pairs of a positive and a negative sample whose scores are in order; a tie counts half."""
    won = total = 0.0
    for i in np.flatnonzero(labels == 1):
        for j in np.flatnonzero(labels == 0):
            pair = weights[i] * weights[j]
            total += pair
            won += pair * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
    return won / total if total > 0 else math.nan


@given(SAMPLES)
def test_auc_is_the_share_of_pairs_in_order(samples: list[tuple[int, float, float]]) -> None:
    labels, scores, _ = columns(samples)
    ones = np.ones_like(labels)
    np.testing.assert_allclose(auc(labels, scores), auc_by_pairs(labels, scores, ones), atol=1e-12)


@given(SAMPLES)
def test_weighted_auc(samples: list[tuple[int, float, float]]) -> None:
    labels, scores, weights = columns(samples)
    weights = np.round(weights, 2)
    np.testing.assert_allclose(auc(labels, scores, weights), auc_by_pairs(labels, scores, weights), atol=1e-9)


@given(SAMPLES)
def test_a_weight_is_a_number_of_copies(samples: list[tuple[int, float, float]]) -> None:
    labels, scores, weights = columns([(y, min(max(s, -30.0), 30.0), w) for y, s, w in samples])
    copies = np.round(weights).astype(int)
    weighted = evaluate(scores, labels, copies.astype(float))
    repeated = evaluate(np.repeat(scores, copies), np.repeat(labels, copies))
    for name in ("auc", "logloss", "normalised_entropy", "calibration"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-9, atol=1e-12)


@given(SAMPLES)
def test_log_loss_is_the_textbook_formula(samples: list[tuple[int, float, float]]) -> None:
    labels, scores, _ = columns([(y, min(max(s, -20.0), 20.0), w) for y, s, w in samples])
    p = [1.0 / (1.0 + math.exp(-float(s))) for s in scores]
    terms = [-math.log(q) if y == 1 else -math.log1p(-q) for y, q in zip(labels, p, strict=True)]
    np.testing.assert_allclose(log_loss_from_logits(labels, scores), sum(terms) / len(terms), rtol=1e-6)
    np.testing.assert_allclose(probabilities(scores), p, rtol=1e-12)


def test_large_logits_stay_finite() -> None:
    labels, logits = np.array([0.0, 1.0]), np.array([1000.0, -1000.0])
    assert log_loss_from_logits(labels, logits) == 1000.0
    assert probabilities(logits).tolist() == [1.0, 0.0]


def test_predicting_the_base_rate_is_normalised_entropy_one_and_calibration_one() -> None:
    labels = np.array([1.0, 0.0, 0.0, 0.0])
    report = evaluate(np.full(4, math.log(1 / 3)), labels)
    assert report.normalised_entropy == pytest.approx(1.0)
    assert report.calibration == pytest.approx(1.0)
    assert report.auc == 0.5
    assert (report.samples, report.positives) == (4, 1)


def test_metrics_that_are_not_defined_with_one_class_are_nan() -> None:
    report = evaluate(np.array([0.5, 1.0]), np.zeros(2))
    assert math.isnan(report.auc)
    assert math.isnan(report.normalised_entropy)
    assert math.isnan(report.calibration)
    assert report.logloss > 0


def test_no_samples() -> None:
    report = evaluate(np.empty(0), np.empty(0))
    assert report.samples == 0
    assert math.isnan(report.auc)
    assert math.isnan(report.logloss)


def test_the_first_bad_logit_is_named() -> None:
    with pytest.raises(NonFiniteError, match="2 of 4 logits are not finite; the first is nan, of sample 1"):
        evaluate(np.array([0.0, np.nan, 1.0, np.inf]), np.zeros(4))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="the same shape"):
        evaluate(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="the same shape"):
        evaluate_labels(np.zeros((3, 2)), np.zeros((3, 1)))


def test_several_labels_are_reported_separately() -> None:
    labels = np.array([[0.0, 1.0], [1.0, 0.0]])
    first, second = evaluate_labels(np.array([[-1.0, -1.0], [1.0, 1.0]]), labels)
    assert (first.auc, second.auc) == (1.0, 0.0)


def test_calibration_and_normalised_entropy_of_known_numbers() -> None:
    assert calibration(np.array([1.0, 0.0]), np.array([0.6, 0.6])) == pytest.approx(1.2)
    assert normalised_entropy(math.log(2), 3.0, 3.0) == pytest.approx(1.0)
    entropy = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
    assert normalised_entropy(0.5, 2.0, 18.0) == pytest.approx(0.5 / entropy, rel=1e-12)
    assert normalised_entropy(1.0, 1.0, 1e-30) == pytest.approx(1.0 / (1e-30 * (1 + 30 * math.log(10))), rel=1e-12)
    assert math.isnan(normalised_entropy(0.1, 1.0, 0.0)) and math.isnan(normalised_entropy(0.1, 0.0, 1.0))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_normalised_entropy_of_one_class_with_any_weights_is_not_defined(label: float) -> None:
    """The base rate of such weights is rounded: it may be 1 - 1e-16."""
    generator = np.random.default_rng(5)
    logits, labels = np.zeros(10_000), np.full(10_000, label)
    for _ in range(20):
        weights = np.exp(3 * generator.standard_normal(10_000)).astype(np.float32)
        assert math.isnan(evaluate(logits, labels, weights).normalised_entropy)
