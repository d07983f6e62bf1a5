"""Fits in log space: priors, robust least squares, what the data determine, how far predictions can be trusted. Pure.

A model gives rows: predicted logarithms and their derivatives. All of it is relative: a residual of 0.1 is ten percent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.models.base import NORMAL_90

__all__ = ["Belief", "Estimate", "Evaluate", "Rows", "conformal_factor", "estimate", "rank_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Evaluate = Callable[[Floats], tuple[Floats, Floats]]

SMALLEST_DISCREPANCY = 0.03
ROUNDS = 3  # of fitting and asking how far the model is off
STEPS = 40
LONGEST = 1.0  # step, in standard deviations of the prior
FIRST_DAMPING, LARGEST_DAMPING = 0.1, 1e6
TOLERANCE = 3e-3  # of the loss
WEIGHTED_SQUARE = 0.5649  # mean of z^2 / sqrt(1 + z^2), z standard normal
BELIEVED = 8.0  # what is believed of a discrepancy beforehand counts as so many observations
MANY = 40  # configurations that would halve (in log) what too wide intervals are narrowed by
DETERMINED = 0.01  # singular value, relative to the largest, of a direction that data determine


class Rows(msgspec.Struct, frozen=True):
    """What was measured: r values of several kinds.

    log: float64 [r] logarithms; error: float64 [r] their own standard errors; kind: int64 [r] which discrepancy is
    theirs; group: int64 [r] the configuration each is of; discrepancy: float64 [kinds] how far the model is thought to
    be off, relative to what it predicts."""

    log: Floats
    error: Floats
    kind: Ints
    group: Ints
    discrepancy: Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """theta: float64 [k] most probable; information: float64 [k, k] what the data alone say, J'WJ; prior_sd: float64
    [k], wider than it was where data contradict what was learnt of other jobs; covariance: float64 [k, k] of both
    together (Laplace).

    discrepancy: float64 [kinds]; residuals: float64 [r] measured less predicted; jacobian: float64 [r, k]; spread:
    float64 [r] standard deviation of a row, model's part included; weights: float64 [r] of the robust loss, 1 for what
    fits."""

    theta: Floats
    information: Floats
    prior_sd: Floats
    covariance: Floats
    discrepancy: Floats
    residuals: Floats
    jacobian: Floats
    spread: Floats
    weights: Floats


@dataclass(frozen=True, slots=True)
class _Point:
    """Parameters z = (theta - prior mean) / prior sd, and what is predicted there."""

    z: Floats
    predicted: Floats
    jacobian: Floats  # [r, k] with respect to theta


class Belief(msgspec.Struct, frozen=True):
    """Of k parameters before anything is measured, float64 [k]: normal with this mean and standard deviation. bool [k]
    is_transferred: learnt of other jobs; where data contradict it, it gives way (Cauchy tails)."""

    mean: Floats
    sd: Floats
    is_transferred: npt.NDArray[np.bool_]


def estimate(evaluate: Evaluate, rows: Rows, belief: Belief) -> Estimate:
    """The most probable parameters, by robust least squares with priors, and how far the model is off.

    `evaluate(theta)` gives predicted logarithms [r] and their Jacobian [r, k]. Minimises the soft-L1 loss
    sum 2 (sqrt(1 + r^2) - 1) of the rows, r in units of their spread, plus what the priors say: z^2, or log(1 + z^2)
    for what was learnt of other jobs, z = (theta - mean) / sd. The discrepancy of each kind is what is left when the
    rows' own errors are taken from the mean squared residual (an EM step, between rounds), with `rows.discrepancy` as
    what is believed of it beforehand.
    """
    discrepancy = rows.discrepancy.copy()
    point = _Point(np.zeros(len(belief.mean)), *evaluate(belief.mean))
    for turn in range(ROUNDS):
        spread = np.sqrt(rows.error**2 + discrepancy[rows.kind] ** 2)
        point = _minimum(evaluate, rows.log, spread, belief, point)
        residual = rows.log - point.predicted
        weights = 1.0 / np.sqrt(1.0 + (residual / spread) ** 2)
        scaled = point.jacobian * (np.sqrt(weights) / spread)[:, None]
        information = scaled.T @ scaled
        # inverted in units of the prior, where it is the identity and more
        prior_sd = belief.sd / np.sqrt(_prior_weights(belief, point.z))
        whitened = prior_sd[:, None] * information * prior_sd + np.eye(len(prior_sd))
        covariance = prior_sd[:, None] * np.linalg.inv(whitened) * prior_sd
        if turn + 1 < ROUNDS:
            discrepancy = _discrepancy(rows, residual, point.jacobian, covariance, weights)
    theta = belief.mean + belief.sd * point.z
    return Estimate(theta, information, prior_sd, covariance, discrepancy, residual, point.jacobian, spread, weights)


def _prior_weights(belief: Belief, z: Floats) -> Floats:
    """Half the slope of the prior's loss with respect to z^2."""
    return np.where(belief.is_transferred, 1.0 / (1.0 + z * z), 1.0)


def _minimum(evaluate: Evaluate, logs: Floats, spread: Floats, belief: Belief, start: _Point) -> _Point:
    """Levenberg and Marquardt's method on reweighted squares, in units of the prior.

    scipy's least_squares finds the same minimum in three times the time: with a dozen parameters its own work is more
    than the model's.
    """

    def loss(point: _Point) -> float:
        squares = ((logs - point.predicted) / spread) ** 2
        beliefs = np.where(belief.is_transferred, np.log1p(point.z**2), point.z**2)
        return float(2.0 * np.sum(np.sqrt(1.0 + squares) - 1.0) + beliefs.sum())

    point, value, damping = start, loss(start), FIRST_DAMPING
    for _ in range(STEPS):
        residual = (logs - point.predicted) / spread
        weights = 1.0 / np.sqrt(1.0 + residual**2)
        jacobian = point.jacobian * (belief.sd / spread[:, None])
        weighted, prior_weights = jacobian.T * weights, _prior_weights(belief, point.z)
        slope = weighted @ residual - prior_weights * point.z
        curvature = weighted @ jacobian
        curvature[np.diag_indices_from(curvature)] += prior_weights + damping
        step = np.linalg.solve(curvature, slope)
        step *= min(1.0, LONGEST / max(1e-300, float(np.abs(step).max())))
        z = point.z + step
        tried = _Point(z, *evaluate(belief.mean + belief.sd * z))
        reached = loss(tried)
        if reached < value:
            gained, point, value, damping = value - reached, tried, reached, 0.2 * damping
            if gained < TOLERANCE * (1.0 + value):
                break
        elif damping > LARGEST_DAMPING:
            break
        else:
            damping = max(1.0, 10.0 * damping)
    return point


def _discrepancy(rows: Rows, residual: Floats, jacobian: Floats, covariance: Floats, weights: Floats) -> Floats:
    """delta^2 = (nu delta0^2 + sum(r^2 + j cov j' - error^2)) / (nu + n) for each kind: the expected squared
    discrepancy, given what is known of the parameters. An outlier counts as much as the loss lets it, and all so much
    more that normal residuals come to their variance."""
    squares = weights * residual**2 / WEIGHTED_SQUARE
    parameters = np.minimum(np.einsum("rk,kl,rl->r", jacobian, covariance, jacobian), squares + rows.error**2)
    kinds = len(rows.discrepancy)
    sums = np.bincount(rows.kind, squares + parameters - rows.error**2, minlength=kinds)
    counts = np.bincount(rows.kind, minlength=kinds)
    found = (BELIEVED * rows.discrepancy**2 + sums) / (BELIEVED + counts)
    return np.sqrt(np.maximum(found, SMALLEST_DISCREPANCY**2))


def conformal_factor(found: Estimate, rows: Rows, kind: int, coverage: float = 0.9) -> float:
    """What predictive standard deviations are to be multiplied with, from leave-one-configuration-out residuals.

    Without the rows G of a configuration the residuals there would be (I - H_GG)^-1 r_G, H = J cov J' in units of the
    rows' spread: exact for a linear model, and no refits (Cook and Weisberg, Residuals and Influence, 1982, 2.2).
    The robust loss weighs rows in the fit, and so in H; a score is the residual itself over its standard deviation.
    1 with fewer than five configurations. Shrinks intervals only as far as many configurations ask for it: with few
    of them the noise of the observations is all that is seen, and says nothing of how far the model is off.
    """
    scaled = found.jacobian * (np.sqrt(found.weights) / found.spread)[:, None]
    residuals = found.residuals * np.sqrt(found.weights) / found.spread
    scores: list[float] = []
    for group in np.unique(rows.group[rows.kind == kind]):
        inside = np.flatnonzero(rows.group == group)
        kept = np.eye(len(inside)) - scaled[inside] @ found.covariance @ scaled[inside].T
        inverse = np.linalg.inv(kept + 1e-9 * np.eye(len(inside)))
        # in these units a row's own variance is its weight, and (I - H)^-1 - I what its prediction adds
        left_out = inverse @ residuals[inside]
        wanted = rows.kind[inside] == kind
        variance = np.diag(inverse) - 1.0 + found.weights[inside]
        scores.extend(np.abs(left_out[wanted]) / np.sqrt(variance[wanted]))
    if len(scores) < 5:
        return 1.0
    ordered = np.sort(scores)
    place = min(len(ordered) - 1, int(np.ceil((len(ordered) + 1) * coverage)) - 1)
    factor = float(ordered[place] / NORMAL_90)
    return factor if factor >= 1.0 else max(factor, 0.1) ** (len(scores) / (len(scores) + MANY))


def rank_of(found: Estimate) -> int:
    """Directions of the parameters that data determine: singular values of the data's Jacobian, in units of the rows'
    spread, that are at least a hundredth of the largest."""
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(found.information), 0.0))
    return int((values > DETERMINED * values.max()).sum()) if len(values) and values.max() > 0 else 0
