"""Fits models whose iteration time is a sum of columns with nonnegative coefficients. Pure.

A fit always finds coefficients, but they may be meaningless outside the observed configurations. So the fit reports its
rank, and for each candidate whether its row of columns is a linear combination of the observed rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, Workload, as_array
from elastichost.tuner.models.base import NORMAL_90, Prior, checked, distinct, interval, iteration_s

__all__ = ["UNKNOWN", "Design", "LinearFit", "fit_columns"]

Floats = npt.NDArray[np.float64]
Design = Callable[[Workload, ConfigurationArray], Mapping[str, Floats]]

UNKNOWN = 3.0  # standard deviation of log(samples_per_s) without knowledge; the 90 % interval is a factor of 140
INDEPENDENT = 1e-6  # least singular value, relative to the largest, that is not a rounding error
LEAST_ERROR = 0.01
GUESSED_SAMPLE_S = 1e-5


@dataclass(frozen=True, slots=True)
class LinearFit:
    """The fit of a sum of k columns; see `base.Fit`. scale: float64 [k], scale of each column. directions: float64
    [rank, k], orthonormal rows that span the observed scaled rows. inverse: float64 [k, k], pseudo-inverse of the
    normal matrix. residual: standard deviation of log(measured / predicted)."""

    name: str
    workload: Workload
    observations: int
    configurations: int
    design: Design
    parameters: Mapping[str, float]
    scale: Floats
    directions: Floats
    inverse: Floats
    residual: float

    @property
    def rank(self) -> int:
        return len(self.directions)

    @property
    def parameters_total(self) -> int:
        return len(self.parameters)

    @property
    def confidence(self) -> float:
        """Lower end of the 90 % interval / prediction, for measured configurations; 0 without observations."""
        return float(np.exp(-NORMAL_90 * self.residual)) if self.observations else 0.0

    def predict(self, configurations: ConfigurationArray, hot_share: float | None = None) -> Predictions:
        """See `base.Fit`; the model ignores `hot_share`.

        A candidate is extrapolated if its row of columns lies outside the span of the observed rows; its prediction is
        then a guess with the error `UNKNOWN`."""
        columns = np.column_stack(list(self.design(self.workload, configurations).values()))
        seconds = columns @ np.array(list(self.parameters.values()))
        rows = columns / self.scale
        left = rows - rows @ self.directions.T @ self.directions
        length = np.linalg.norm(rows, axis=1)
        is_extrapolated = np.linalg.norm(left, axis=1) > 1e-4 * np.maximum(length, 1e-300)
        # Linear regression with relative errors: the variance of a prediction is s^2 (1 + x (X'X)^-1 x'), with
        # s = `residual`, x = row / T, X the rows of the observations.
        relative = rows / np.maximum(seconds, 1e-300)[:, None]
        leverage = np.einsum("nk,kl,nl->n", relative, self.inverse, relative)
        log_error = np.minimum(UNKNOWN, self.residual * np.sqrt(1.0 + leverage))
        log_error = np.where(is_extrapolated, UNKNOWN, log_error)
        samples = self.workload.batch_size * (1.0 if self.workload.mode == "sync" else configurations[:, 0])
        return interval(np.log(samples / np.maximum(seconds, 1e-300)), log_error, is_extrapolated)

    def posterior(self) -> Prior:
        """An empty prior: the model has no priors, and starts without knowledge for each job."""
        return Prior()


def fit_columns(name: str, design: Design, workload: Workload, observations: Sequence[Observation]) -> LinearFit:
    """Fits coefficients >= 0 that minimise the sum of ((T_predicted - T) / T)^2, T in seconds per iteration (Lawson and
    Hanson's active-set method, `scipy.optimize.nnls`).

    Without observations the constant is a guess, and every configuration is extrapolated. Raises ValueError as
    `base.checked`.
    """
    from scipy.optimize import nnls

    checked(workload, observations)
    configurations = as_array([one.configuration for one in observations])
    named = design(workload, configurations if observations else np.ones((1, 4)))
    columns = np.column_stack(list(named.values()))
    scale = np.maximum(np.sqrt((columns**2).mean(axis=0)), 1e-300)
    if not observations:
        guess = dict.fromkeys(named, 0.0) | {"constant": GUESSED_SAMPLE_S * workload.batch_size}
        k = len(scale)
        return LinearFit(name, workload, 0, 0, design, guess, scale, np.zeros((0, k)), np.zeros((k, k)), UNKNOWN)
    times_s = iteration_s(workload, observations)
    relative = columns / scale / times_s[:, None]
    coefficients, _ = nnls(relative, np.ones(len(times_s)))
    predicted_s = columns @ (coefficients / scale)
    # the span of the observed rows; it does not depend on the measured times
    _, values, vectors = np.linalg.svd(columns / scale, full_matrices=False)
    directions = vectors[values > INDEPENDENT * values.max()]
    own = np.median([one.log_error for one in observations])
    free = max(1, len(times_s) - len(directions))
    log_ratio = np.log(np.maximum(predicted_s, 1e-300) / times_s)
    residual = float(np.sqrt(max(LEAST_ERROR**2, own**2 / free, np.sum(log_ratio**2) / free)))
    return LinearFit(
        name=name,
        workload=workload,
        observations=len(observations),
        configurations=distinct(observations),
        design=design,
        parameters=dict(zip(named, map(float, coefficients / scale), strict=True)),
        scale=scale,
        directions=directions,
        inverse=np.linalg.pinv(relative.T @ relative),
        residual=residual,
    )
