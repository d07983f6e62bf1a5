"""What is believed of a configuration's speed: what the model predicts, corrected by what was measured nearby. Pure.

How far a model is off is no accident of each configuration: where it errs, it errs alike in configurations that are
alike. So the residuals of what was measured tell of what was not (simple kriging; Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, section 2.2). Neighbours of a configuration that is known are nearly known
themselves, and of several that were measured with noise none is taken for the best because it had luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, as_array
from elastichost.tuner.models.base import Fit, interval
from elastichost.tuner.models.ceiling import bounded, most

__all__ = ["Surface", "likeness", "surface", "weights_of"]

Floats = npt.NDArray[np.float64]

MATTERS = 0.05  # change of log speed by an octave of a number, from which on that number counts in full
LEAST_WEIGHT = 0.1  # of a number that makes no difference
BELIEVED = 4.0  # what predictions say of their errors counts as so many residuals
ROUNDS = 3  # of asking how large residuals are, given how much of them is noise


def likeness(some: ConfigurationArray, others: ConfigurationArray, weights: Floats) -> Floats:
    """Correlation of residuals, float64 [n, k] for float64 [n, 4] and [k, 4]: exp(-sum (weight * octaves apart)^1.5).

    weights: float64 [4]. Of the queue simulator's residuals (semivariances over 540 fits to 45 jobs) it was 0.08 short
    of one at a sixth of an octave, 0.2 at a third, 0.5 at three quarters, 0.9 at two, where the number made a
    difference."""
    apart = np.zeros((len(some), len(others)))
    for column in range(some.shape[1]):
        octaves = np.abs(np.log2(some[:, column])[:, None] - np.log2(others[:, column])[None, :]) * weights[column]
        apart += octaves * np.sqrt(octaves)
    found: Floats = np.exp(-apart)
    return found


def weights_of(fitted: Fit, configuration: ConfigurationArray, hot_share: float | None) -> Floats:
    """How much each number counts in likenesses, float64 [4]: less where the model sees none of it in the speed. There
    it hardly errs: residuals an octave apart differed by 0.02 of their variance where the prediction changed by less
    than 1 %. configuration: float64 [1, 4], an octave to each side of which is asked for; a change of what the model
    does not know counts as one of what it predicts."""
    numbers = np.arange(configuration.shape[1])
    steps = np.ones((2 * len(numbers), len(numbers)))
    steps[numbers, numbers], steps[len(numbers) + numbers, numbers] = 0.5, 2.0
    around = np.maximum(1.0, configuration * steps)
    told = fitted.predict(np.concatenate([configuration, around]), hot_share)
    speeds, variances = np.log(told.samples_per_s), told.log_error**2
    changes = np.abs(speeds[1:] - speeds[0]) + np.sqrt(np.abs(variances[1:] - variances[0]))
    weights: Floats = np.clip(changes.reshape(2, -1).max(axis=0) / MATTERS, LEAST_WEIGHT, 1.0)
    return weights


@dataclass(frozen=True, slots=True)
class Surface:
    """observations: what was measured; seen: float64 [k, 4] its configurations; weights: float64 [4] as of `likeness`;
    root: float64 [k] how far predictions there may be off; inverse: float64 [k, k] of the residuals' covariance in
    these units, noise included; residuals: float64 [k] in these units; scale: residuals are so many times larger than
    predictions say."""

    fitted: Fit
    hot_share: float | None
    observations: tuple[Observation, ...]
    seen: ConfigurationArray
    weights: Floats
    inverse: Floats
    residuals: Floats
    scale: float
    root: Floats

    def at(self, configurations: ConfigurationArray, beside: int | None = None) -> Predictions:
        """For float64 [n, 4]. beside: index of one that was measured: `log_error` is then that of the difference to it,
        of which more is known than of both: what is wrong with the one is wrong with the other. Nothing is predicted to
        exceed `most`, however sure the model is."""
        told = self.fitted.predict(configurations, self.hot_share)
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
        return bounded(told, self.most(configurations))

    def most(self, configurations: ConfigurationArray) -> Floats:
        """samples/s that measured work leaves possible, float64 [n]; see `ceiling`."""
        return most(self.fitted.workload, self.observations, configurations)

    def unfamiliar(self, configurations: ConfigurationArray) -> Floats:
        """One less the likeness to what is most alike of what was measured; float64 [n] for float64 [n, 4]."""
        unlike: Floats = 1.0 - likeness(configurations, self.seen, self.weights).max(axis=1)
        return unlike


def surface(fitted: Fit, observations: Sequence[Observation], hot_share: float | None) -> Surface:
    """From at least one observation, one a configuration.

    With r = k * log_error * N(0, likeness) + noise the residuals, k >= 1 says how much larger they are than the model
    takes them to be: k^2 = (nu + r' C^-1 r) / (nu + n), where C is their covariance at the k of the round before, in
    units of log_error^2.
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
    return Surface(fitted, hot_share, tuple(observations), seen, weights, inverse, off / root, scale, root)
