"""Metrics of predictions: AUC, log loss, normalised entropy, calibration. They are exact: no binning, in float64.

A metric that is not defined (such as AUC with one class only) is NaN.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.errors import NonFiniteError

__all__ = [
    "QualityReport",
    "auc",
    "calibration",
    "evaluate",
    "evaluate_labels",
    "log_loss_from_logits",
    "normalised_entropy",
    "probabilities",
]

Floats = npt.NDArray[np.float64]


class QualityReport(msgspec.Struct, frozen=True):
    """The metrics of one label over one set of samples. `positives` counts samples; weights do not matter for it."""

    auc: float
    logloss: float  # nats per sample
    normalised_entropy: float
    calibration: float
    samples: int
    positives: int


def probabilities(logits: npt.NDArray[np.floating]) -> Floats:
    """Sigmoid of the logits: float64 of the same shape, without overflow for logits of any size."""
    values = np.asarray(logits, dtype=np.float64)
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0, small) / (1.0 + small)


def auc(
    labels: npt.NDArray[np.floating],
    scores: npt.NDArray[np.floating],
    weights: npt.NDArray[np.floating] | None = None,
) -> float:
    """Area under the ROC curve of `scores` [n] for `labels` [n] of 0 and 1: P(s+ > s-) + 1/2 P(s+ = s-).

    Ties count half (midranks). With `weights` [n] a pair counts by the product of its weights. NaN when one
    class is empty (or has no weight).
    """
    if labels.size == 0:
        return float("nan")
    order = np.argsort(scores)
    ordered = scores[order]
    is_last_of_tie = np.append(ordered[1:] != ordered[:-1], True)
    mass = np.ones(labels.size) if weights is None else np.asarray(weights, dtype=np.float64)[order]
    positive = np.asarray(labels, dtype=np.float64)[order] * mass
    # One entry for each distinct score: the mass of each class with at most this score.
    positives = np.cumsum(positive)[is_last_of_tie]
    negatives = np.cumsum(mass - positive)[is_last_of_tie]
    pairs = positives[-1] * negatives[-1]
    if not pairs > 0:
        return float("nan")
    here = np.diff(positives, prepend=0.0)
    below_and_half = (np.concatenate(([0.0], negatives[:-1])) + negatives) / 2
    return float(here @ below_and_half / pairs)


def log_loss_from_logits(
    labels: npt.NDArray[np.floating],
    logits: npt.NDArray[np.floating],
    weights: npt.NDArray[np.floating] | None = None,
) -> float:
    """Mean of -y log p - (1 - y) log(1 - p), p = sigmoid(logit), in nats; exact for logits of any size."""
    values = np.asarray(logits, dtype=np.float64)
    losses = np.maximum(values, 0) - values * labels + np.log1p(np.exp(-np.abs(values)))
    return _mean(losses, weights)


def normalised_entropy(logloss: float, positives: float, negatives: float) -> float:
    """Log loss over that of always predicting the base rate (He et al. 2014, equation 1). positives, negatives: the
    summed weights of the samples of each class. NaN when either is 0.

    The base rate alone does not tell: rounding may make it 1 - 1e-16 where no sample is negative."""
    if not (positives > 0 and negatives > 0):
        return float("nan")
    summed = positives * math.log1p(negatives / positives) + negatives * math.log1p(positives / negatives)
    return logloss * (positives + negatives) / summed


def calibration(
    labels: npt.NDArray[np.floating],
    predicted: npt.NDArray[np.floating],
    weights: npt.NDArray[np.floating] | None = None,
) -> float:
    """Expected over observed positives (He et al. 2014): mean probability / mean label. NaN when no label is
    positive."""
    observed = _mean(np.asarray(labels, dtype=np.float64), weights)
    if not observed > 0:
        return float("nan")
    return _mean(np.asarray(predicted, dtype=np.float64), weights) / observed


def evaluate(
    logits: npt.NDArray[np.floating],
    labels: npt.NDArray[np.floating],
    weights: npt.NDArray[np.floating] | None = None,
) -> QualityReport:
    """All metrics of `logits` [n] for `labels` [n] (0 or 1), optionally with `weights` [n].

    Raises NonFiniteError with the first logit that is NaN or infinite, ValueError for shapes that differ.
    """
    if logits.ndim != 1 or logits.shape != labels.shape or (weights is not None and weights.shape != labels.shape):
        shapes = [logits.shape, labels.shape, None if weights is None else weights.shape]
        raise ValueError(f"logits, labels and weights must have the same shape [n], not {shapes}")
    bad = ~np.isfinite(logits)
    if bad.any():
        first = int(bad.argmax())
        raise NonFiniteError(
            f"{int(bad.sum())} of {logits.size} logits are not finite; the first is {logits[first]}, of sample {first}",
            hint="lower the learning rates (train.optimizer_rows.lr, train.optimizer_dense.lr)",
        )
    loss = log_loss_from_logits(labels, logits, weights)
    return QualityReport(
        auc=auc(labels, logits, weights),
        logloss=loss,
        normalised_entropy=normalised_entropy(loss, *_class_masses(labels, weights)),
        calibration=calibration(labels, probabilities(logits), weights),
        samples=labels.size,
        positives=int(np.count_nonzero(labels)),
    )


def evaluate_labels(
    logits: npt.NDArray[np.floating],
    labels: npt.NDArray[np.floating],
    weights: npt.NDArray[np.floating] | None = None,
) -> tuple[QualityReport, ...]:
    """`evaluate` for every column of `logits` [n, labels] and `labels` [n, labels]."""
    if logits.ndim != 2 or logits.shape != labels.shape:
        raise ValueError(f"logits and labels must have the same shape [n, labels], not {logits.shape}, {labels.shape}")
    return tuple(evaluate(logits[:, task], labels[:, task], weights) for task in range(logits.shape[1]))


def _class_masses(labels: npt.NDArray[np.floating], weights: npt.NDArray[np.floating] | None) -> tuple[float, float]:
    """(summed weights of the positive samples, of the negative ones). Without weights each sample counts 1."""
    positive = np.asarray(labels, dtype=np.float64)
    mass = np.ones(labels.size) if weights is None else np.asarray(weights, dtype=np.float64)
    return float(positive @ mass), float((1.0 - positive) @ mass)


def _mean(values: Floats, weights: npt.NDArray[np.floating] | None) -> float:
    """The (weighted) mean; NaN when there are no values, or when the weights sum to 0."""
    if values.size == 0:
        return float("nan")
    if weights is None:
        return float(values.mean())
    mass = np.asarray(weights, dtype=np.float64)
    total = float(mass.sum())
    return float(values @ mass) / total if total > 0 else float("nan")
