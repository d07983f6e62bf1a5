"""Robust least-squares fits in log space with priors; the rank of the data and calibrated prediction errors. Pure.

A model provides rows: predicted logarithms and their derivatives. All errors are relative: a residual of 0.1 means ten
percent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["Belief", "Estimate", "Evaluate", "Rows", "estimate", "predictive_factor", "rank_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Evaluate = Callable[[Floats], tuple[Floats, Floats]]

SMALLEST_DISCREPANCY = 0.03
ROUNDS = 3  # rounds of fitting the parameters and then estimating the discrepancy
STEPS = 40  # largest number of steps of a minimisation
LONGEST = 1.0  # longest step, in standard deviations of the prior
FIRST_DAMPING, LARGEST_DAMPING = 0.1, 1e6
TOLERANCE = 3e-3  # a minimisation ends when a step reduces the loss by less than this, relative to 1 + loss
WEIGHTED_SQUARE = 0.5649  # mean of z^2 / sqrt(1 + z^2), z standard normal
BELIEVED = 8.0  # weight of the prior of a discrepancy, in observations
TRANSFERRED = 4.0  # weight of the scale of errors on other jobs, in scores of this one
OUTLYING = 3.0  # scores above this multiple of that scale are cut to it
DETERMINED = 0.01  # least singular value, relative to the largest, of a direction that the data determine


class Rows(msgspec.Struct, frozen=True):
    """The r measured values of a fit, of several kinds (such as speeds and computing times).

    log: float64 [r], the logarithms of the values. error: float64 [r], the standard errors of the logs. kind: int64
    [r], index into `discrepancy`. group: int64 [r], index of the configuration. discrepancy: float64 [kinds], prior
    standard deviation of the model's own error, relative to its prediction."""

    log: Floats
    error: Floats
    kind: Ints
    group: Ints
    discrepancy: Floats


@dataclass(frozen=True, slots=True)
class Estimate:
    """The result of a fit of k parameters to r rows.

    theta: float64 [k], the most probable parameters. information: float64 [k, k], J'WJ of the data alone. prior_sd:
    float64 [k], standard deviations of the prior; wider than before where data contradict a transferred prior.
    covariance: float64 [k, k], of data and prior together (Laplace approximation).

    discrepancy: float64 [kinds], estimated error of the model. residuals: float64 [r], measured less predicted logs.
    jacobian: float64 [r, k]. spread: float64 [r], standard deviation of a row, including the model's discrepancy.
    weights: float64 [r], weights of the robust loss; 1 for rows without residual."""

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
    """Scaled parameters z = (theta - prior mean) / prior sd, and the predictions at theta."""

    z: Floats
    predicted: Floats
    jacobian: Floats  # [r, k] with respect to theta


class Belief(msgspec.Struct, frozen=True):
    """The prior of k parameters: normal with these means and standard deviations, float64 [k]. is_transferred: bool
    [k], the prior comes from other jobs. A transferred prior has Cauchy tails, so data that contradict it outweigh
    it."""

    mean: Floats
    sd: Floats
    is_transferred: npt.NDArray[np.bool_]


def estimate(evaluate: Evaluate, rows: Rows, belief: Belief) -> Estimate:
    """Estimates the most probable parameters and the discrepancy of the model, by robust least squares with priors.

    `evaluate(theta)` returns predicted logarithms float64 [r] and their Jacobian float64 [r, k]. The minimised loss is

        sum over rows of 2 (sqrt(1 + r^2) - 1)  +  sum over parameters of  z^2, or log(1 + z^2) if transferred

    r: residual of a row in units of its spread (soft-L1 loss). z = (theta - mean) / sd. Between rounds, the discrepancy
    of each kind is estimated as the mean squared residual less the rows' own variances (an EM step), with
    `rows.discrepancy` as its prior.
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
        # inverted in units of the prior, where the matrix is the identity plus the information
        prior_sd = belief.sd / np.sqrt(_prior_weights(belief, point.z))
        whitened = prior_sd[:, None] * information * prior_sd + np.eye(len(prior_sd))
        covariance = prior_sd[:, None] * np.linalg.inv(whitened) * prior_sd
        if turn + 1 < ROUNDS:
            discrepancy = _discrepancy(rows, residual, point.jacobian, covariance, weights)
    theta = belief.mean + belief.sd * point.z
    return Estimate(theta, information, prior_sd, covariance, discrepancy, residual, point.jacobian, spread, weights)


def _prior_weights(belief: Belief, z: Floats) -> Floats:
    """Derivative of the prior's loss with respect to z^2: 1, or 1 / (1 + z^2) if transferred."""
    return np.where(belief.is_transferred, 1.0 / (1.0 + z * z), 1.0)


def _minimum(evaluate: Evaluate, logs: Floats, spread: Floats, belief: Belief, start: _Point) -> _Point:
    """Minimises the loss with the Levenberg-Marquardt method on reweighted squares, in units of the prior.

    scipy's least_squares finds the same minimum in three times the time: with a dozen parameters, its overhead exceeds
    the time of the model.
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
    """The expected squared discrepancy of each kind, given the covariance of the parameters:

        delta^2 = (nu delta0^2 + sum(r^2 + j cov j' - error^2)) / (nu + n)

    delta: discrepancy; delta0: its prior; nu = BELIEVED. n: rows of the kind. r: residual, j: row of the Jacobian, cov:
    covariance of the parameters, error: standard error of the row. r^2 is multiplied by the weight of the robust loss
    and divided by WEIGHTED_SQUARE, so that normal residuals give their variance and outliers count less. Returns
    delta, at least SMALLEST_DISCREPANCY.
    """
    squares = weights * residual**2 / WEIGHTED_SQUARE
    parameters = np.minimum(np.einsum("rk,kl,rl->r", jacobian, covariance, jacobian), squares + rows.error**2)
    kinds = len(rows.discrepancy)
    sums = np.bincount(rows.kind, squares + parameters - rows.error**2, minlength=kinds)
    counts = np.bincount(rows.kind, minlength=kinds)
    found = (BELIEVED * rows.discrepancy**2 + sums) / (BELIEVED + counts)
    return np.sqrt(np.maximum(found, SMALLEST_DISCREPANCY**2))


def predictive_factor(found: Estimate, rows: Rows, kind: int, transfer: float) -> float:
    """The factor for predictive standard deviations, from errors of predictions and not of the fit.

    A fit with a dozen parameters passes near every configuration that it has seen, so its residuals say little about
    other configurations. If the fit had no rows G of a configuration, their residuals would be (I - H_GG)^-1 r_G with
    H = J cov J' in units of the rows' spread. That is exact for a linear model and needs no refits (Cook and Weisberg,
    Residuals and Influence, 1982, section 2.2). The robust loss weights the rows in the fit, and therefore in H. The
    score of a row is its left-out residual over its standard deviation, cut at OUTLYING times `transfer`. The factor is
    the scale of the scores, whose prior is `transfer`, the scale on jobs that no one has seen:

        factor^2 = (nu transfer^2 + sum(score^2)) / (nu + n)

    nu = TRANSFERRED. n: number of scores; with one configuration there is none."""
    scaled = found.jacobian * (np.sqrt(found.weights) / found.spread)[:, None]
    residuals = found.residuals * np.sqrt(found.weights) / found.spread
    scores: list[float] = []
    for group in np.unique(rows.group[rows.kind == kind]):
        inside = np.flatnonzero(rows.group == group)
        kept = np.eye(len(inside)) - scaled[inside] @ found.covariance @ scaled[inside].T
        inverse = np.linalg.inv(kept + 1e-9 * np.eye(len(inside)))
        # in these units the variance of a row is its weight, and the diagonal of (I - H)^-1 - I that of its prediction
        left_out = inverse @ residuals[inside]
        wanted = rows.kind[inside] == kind
        variance = np.diag(inverse) - 1.0 + found.weights[inside]
        scores.extend(np.abs(left_out[wanted]) / np.sqrt(variance[wanted]))
    if len(np.unique(rows.group)) < 2:
        scores = []
    squares = np.minimum(scores, OUTLYING * transfer) ** 2
    return float(np.sqrt((TRANSFERRED * transfer**2 + squares.sum()) / (TRANSFERRED + len(scores))))


def rank_of(found: Estimate) -> int:
    """The number of directions of the parameters that the data determine: singular values of the Jacobian, in units of
    the rows' spread, above DETERMINED times the largest."""
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(found.information), 0.0))
    return int((values > DETERMINED * values.max()).sum()) if len(values) and values.max() > 0 else 0
