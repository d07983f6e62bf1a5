"""Corrects the predicted speed of a configuration by the residuals of similar measured configurations. Pure.

The errors of a model are similar in similar configurations. So the residuals of measured configurations predict the
errors of unmeasured ones (simple kriging: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
section 2.2). This has two effects: the neighbours of a measured configuration get small errors, and of several noisy
measurements none is taken as the best only because of a lucky error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, as_array
from elastichost.tuner.models.base import Fit, interval
from elastichost.tuner.models.ceiling import bounded, most

__all__ = ["Around", "Surface", "likeness", "surface", "weights_of"]

Floats = npt.NDArray[np.float64]

MATTERS = 0.05  # a number has full weight if doubling or halving it changes the log speed by at least this
LEAST_WEIGHT = 0.1  # weight of a number without effect
BELIEVED = 4.0  # weight of the model's own error estimates, in residuals
ROUNDS = 3  # rounds of estimating the scale of residuals, given the part of noise in them


def likeness(some: ConfigurationArray, others: ConfigurationArray, weights: Floats) -> Floats:
    """The correlation of residuals, float64 [n, k] for float64 [n, 4] and [k, 4]:

        exp(-sum over the four numbers of (weight * octaves between them)^1.5)

    weights: float64 [4], of `weights_of`. The form fits the residuals in the queue simulator (semivariances over 540
    fits to 45 jobs): for a number that changes the speed, 1 - correlation was 0.08 at a sixth of an octave, 0.2 at a
    third, 0.5 at three quarters, and 0.9 at two octaves."""
    apart = np.zeros((len(some), len(others)))
    for column in range(some.shape[1]):
        octaves = np.abs(np.log2(some[:, column])[:, None] - np.log2(others[:, column])[None, :]) * weights[column]
        apart += octaves * np.sqrt(octaves)
    found: Floats = np.exp(-apart)
    return found


def weights_of(fitted: Fit, configuration: ConfigurationArray, hot_share: float | None) -> Floats:
    """The weight of each of the four numbers in `likeness`, float64 [4].

    A number has a small weight if the model predicts no effect of it, because then the errors of the model do not
    depend on it either: where the prediction changed by less than 1 %, residuals one octave apart differed by 0.02 of
    their variance. configuration: float64 [1, 4]; predictions one octave below and above it are compared. A change of
    the prediction's standard deviation counts like a change of the prediction."""
    numbers = np.arange(configuration.shape[1])
    steps = np.ones((2 * len(numbers), len(numbers)))
    steps[numbers, numbers], steps[len(numbers) + numbers, numbers] = 0.5, 2.0
    around = np.maximum(1.0, configuration * steps)
    told = fitted.predict(np.concatenate([configuration, around]), hot_share)
    speeds, variances = np.log(told.samples_per_s), told.log_error**2
    changes = np.abs(speeds[1:] - speeds[0]) + np.sqrt(np.abs(variances[1:] - variances[0]))
    weights: Floats = np.clip(changes.reshape(2, -1).max(axis=0) / MATTERS, LEAST_WEIGHT, 1.0)
    return weights


class Around(NamedTuple):
    """What is known of n configurations. predictions: corrected. unfamiliar: float64 [n], 1 - likeness to the most
    similar measured configuration. most: float64 [n], the upper limit of the speed from the measured work
    (`ceiling.most`), in samples/s."""

    predictions: Predictions
    unfamiliar: Floats
    most: Floats


@dataclass(frozen=True, slots=True)
class Surface:
    """Corrected predictions for all configurations.

    observations: the k measurements. seen: float64 [k, 4], their configurations. weights: float64 [4], of `likeness`.
    root: float64 [k], standard deviations of the model's errors there. inverse: float64 [k, k], inverse covariance of
    the residuals in units of `root`, noise included. residuals: float64 [k], in units of `root`. scale: ratio of the
    residuals to the errors that the model predicts, at least 1. told: the model's own predictions of `seen`."""

    fitted: Fit
    hot_share: float | None
    observations: tuple[Observation, ...]
    seen: ConfigurationArray
    weights: Floats
    inverse: Floats
    residuals: Floats
    scale: float
    root: Floats
    told: Predictions

    def at(self, configurations: ConfigurationArray, beside: int | None = None) -> Predictions:
        """Corrected predictions for configurations, float64 [n, 4], limited to `Around.most`.

        beside: index of an observation; `log_error` is then the standard deviation of the difference to its
        configuration. The difference has a smaller error than the two speeds, because their errors are correlated."""
        return self.around(configurations, beside).predictions

    def around(self, configurations: ConfigurationArray, beside: int | None = None) -> Around:
        """As `at`, with all that is known of the configurations."""
        return self._corrected(configurations, self.fitted.predict(configurations, self.hot_share), beside)

    def at_seen(self) -> Predictions:
        """Corrected predictions for the measured configurations."""
        return self._corrected(self.seen, self.told, None).predictions

    def _corrected(self, configurations: ConfigurationArray, told: Predictions, beside: int | None) -> Around:
        root = self.scale * told.log_error
        alike = likeness(configurations, self.seen, self.weights)
        taken = alike @ self.inverse
        mean = np.log(told.samples_per_s) + root * (taken @ self.residuals)
        variance = root**2 * (1.0 - np.einsum("nk,nk->n", taken, alike))
        if beside is not None:
            own = likeness(self.seen[[beside]], self.seen, self.weights)[0]
            against = root * self.root[beside] * (alike[:, beside] - taken @ own)
            variance += self.root[beside] ** 2 * (1.0 - own @ self.inverse @ own) - 2.0 * against
        told = interval(mean, np.sqrt(np.maximum(variance, 0.0)), told.is_extrapolated)
        limit = most(self.fitted.workload, self.observations, configurations)
        return Around(bounded(told, limit), 1.0 - alike.max(axis=1), limit)


def surface(fitted: Fit, observations: Sequence[Observation], hot_share: float | None) -> Surface:
    """Builds the surface from at least one observation, one per configuration.

    The n residuals are r = k * log_error * N(0, likeness) + noise, where log_error is the model's predicted error. The
    scale k >= 1 is estimated in ROUNDS rounds as

        k^2 = (nu + r' C^-1 r) / (nu + n)

    nu = BELIEVED. C: covariance of the residuals, noise included, at the k of the round before, divided by k^2; r and C
    are in units of log_error.
    """
    seen = as_array([one.configuration for one in observations])
    told = fitted.predict(seen, hot_share)
    errors = np.array([one.log_error for one in observations])
    speeds = np.array([one.samples_per_s for one in observations])
    weights = weights_of(fitted, seen[[int(np.argmax(speeds))]], hot_share)
    off, alike = np.log(speeds) - np.log(told.samples_per_s), likeness(seen, seen, weights)
    scale, root = 1.0, told.log_error
    for _ in range(ROUNDS):
        covariance = alike + np.diag((errors / root) ** 2)
        residuals = off / root
        squares = scale**2 * float(residuals @ np.linalg.solve(covariance, residuals))
        scale = float(np.sqrt(max(1.0, (BELIEVED + squares) / (BELIEVED + len(seen)))))
        root = scale * told.log_error
    inverse: Floats = np.asarray(np.linalg.inv(alike + np.diag((errors / root) ** 2)), dtype=np.float64)
    return Surface(fitted, hot_share, tuple(observations), seen, weights, inverse, off / root, scale, root, told)
