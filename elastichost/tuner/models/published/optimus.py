"""The speed functions of Optimus. Pure.

Source: Peng et al., Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters, EuroSys 2018, section
3.2. Batches or steps per second are

    async:  f(p, w) = w / (a + b w / p + c w + d p)
    sync:   f(p, w) = 1 / (a M / w + b + c w / p + d w + e p)

w: workers. p: PS. M: batch of all workers together. a to e: nonnegative coefficients. The time of an iteration is
linear in the coefficients, so nonnegative least squares finds the minimum that a bounded `curve_fit` on times seeks,
without start values. The model does not contain cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Workload
from elastichost.tuner.models.linear import LinearFit, fit_columns

__all__ = ["fit"]


def fit(workload: Workload, observations: Sequence[Observation]) -> LinearFit:
    """Fits the model. Raises ValueError as `base.checked`."""
    return fit_columns("optimus", _columns, workload, observations)


def _columns(workload: Workload, configurations: ConfigurationArray) -> Mapping[str, npt.NDArray[np.float64]]:
    workers, servers = configurations[:, 0], configurations[:, 1]
    shared = {"workers_per_server": workers / servers, "workers": workers, "servers": servers}
    if workload.mode == "sync":
        return {"batch": workload.batch_size / workers, "constant": np.ones_like(workers), **shared}
    return {"constant": np.ones_like(workers), **shared}
