"""The throughput model of Pollux, for nodes of one kind. Pure.

Source: Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021, section 3.2.
The seconds of an iteration are

    T = (T_grad^g + T_sync^g)^(1/g),   T_grad = a + b m,   T_sync = 0 for w = 1, else alpha + beta (w - 2)

w: workers. m: samples that one worker computes. a, b, alpha, beta: nonnegative coefficients. g: sharpness, 1 to
SHARPEST. The model describes all-reduce; it contains neither the number of PS nor the cores of any process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, Workload, as_array
from elastichost.tuner.models.base import NORMAL_90, Prior, checked, distinct, interval, iteration_s
from elastichost.tuner.models.linear import UNKNOWN

__all__ = ["PolluxFit", "fit"]

Floats = npt.NDArray[np.float64]

NAMES = ("a", "b", "alpha", "beta", "sharpness")
SHARPEST = 10.0
LEAST_ERROR = 0.01
GUESSED_SAMPLE_S = 1e-5


@dataclass(frozen=True, slots=True)
class PolluxFit:
    """The fit of Pollux' model; see `base.Fit`. residual: standard deviation of log(measured / predicted).
    most_workers: largest number of workers among the observations."""

    workload: Workload
    observations: int
    configurations: int
    rank: int
    parameters: Mapping[str, float]
    residual: float
    most_workers: int
    name: str = "pollux"

    @property
    def parameters_total(self) -> int:
        return len(self.parameters)

    @property
    def confidence(self) -> float:
        return float(np.exp(-NORMAL_90 * self.residual)) if self.observations else 0.0

    def predict(self, configurations: ConfigurationArray, hot_share: float | None = None) -> Predictions:
        """See `base.Fit`; the model ignores `hot_share`. A configuration is extrapolated if it has more than twice the
        largest observed number of workers; Pollux itself uses the same limit."""
        theta = np.array([self.parameters[name] for name in NAMES])
        log_seconds = _log_seconds(theta, self.workload, configurations)
        is_extrapolated = configurations[:, 0] > 2 * self.most_workers
        log_error = np.where(is_extrapolated, UNKNOWN, self.residual)
        samples = self.workload.batch_size * (1.0 if self.workload.mode == "sync" else configurations[:, 0])
        return interval(np.log(samples) - log_seconds, log_error, is_extrapolated)

    def posterior(self) -> Prior:
        """An empty prior: the model has no priors, and starts without knowledge for each job."""
        return Prior()


def fit(workload: Workload, observations: Sequence[Observation]) -> PolluxFit:
    """Fits the model by bounded least squares on the logarithms of times. Raises ValueError as `base.checked`."""
    from scipy.optimize import least_squares

    checked(workload, observations)
    if not observations:
        guess = dict(zip(NAMES, (0.0, GUESSED_SAMPLE_S, 0.0, 0.0, 1.0), strict=True))
        return PolluxFit(workload, 0, 0, 0, guess, UNKNOWN, 0)
    configurations = as_array([one.configuration for one in observations])
    times_s = iteration_s(workload, observations)
    typical, batch = float(np.median(times_s)), workload.batch_size
    # parameters are scaled by a typical iteration, so that all are of the order of 1
    unit = np.array([typical, typical / batch, typical, typical / max(1.0, configurations[:, 0].max()), 1.0])

    def residuals(scaled: Floats) -> Floats:
        return _log_seconds(scaled * unit, workload, configurations) - np.log(times_s)

    found = least_squares(
        residuals, [0.3, 0.3, 0.3, 0.3, 2.0], bounds=([1e-9] * 4 + [1.0], [np.inf] * 4 + [SHARPEST]), x_scale="jac"
    )
    values = np.linalg.svd(found.jac, compute_uv=False)
    rank = int((values > 1e-4 * values.max()).sum()) if values.max() > 0 else 0
    free = max(1, len(times_s) - rank)
    own = np.median([one.log_error for one in observations])
    return PolluxFit(
        workload=workload,
        observations=len(observations),
        configurations=distinct(observations),
        rank=rank,
        parameters=dict(zip(NAMES, map(float, found.x * unit), strict=True)),
        residual=float(np.sqrt(max(LEAST_ERROR**2, own**2 / free, np.sum(found.fun**2) / free))),
        most_workers=int(configurations[:, 0].max()),
    )


def _log_seconds(theta: Floats, workload: Workload, configurations: ConfigurationArray) -> Floats:
    a, b, alpha, beta, g = theta
    workers = configurations[:, 0]
    batch = workload.batch_size / (workers if workload.mode == "sync" else np.ones_like(workers))
    log_gradient = np.log(np.maximum(a + b * batch, 1e-300))
    synchronising = np.where(workers > 1, alpha + beta * np.maximum(0.0, workers - 2.0), 0.0)
    log_synchronising = np.log(np.maximum(synchronising, 1e-300))
    return np.asarray(np.logaddexp(g * log_gradient, g * log_synchronising) / g, dtype=np.float64)
