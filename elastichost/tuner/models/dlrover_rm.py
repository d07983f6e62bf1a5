"""The resource-performance model of DLRover-RM, as published: four times that add up. Pure.

Wang et al., DLRover-RM: Resource Optimization for Deep Recommendation Models Training in the Cloud, PVLDB 17(12), 2024.
Its coefficients are constants of a job, as are batch, dense bytes, dimension and bandwidth: the four constants are one
number, and of the columns those that differ by a constant are one as well. Rank 5 at most, 3 when cores never change,
2 when only the number of workers does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Workload
from elastichost.tuner.models.linear import LinearFit, fit_columns

__all__ = ["fit"]

SAMPLE_BYTES = 4.0  # of a sample's row, where the workload does not say: a column's unit makes no difference


def fit(workload: Workload, observations: Sequence[Observation]) -> LinearFit:
    """Fits the model. Raises ValueError for observations that cannot be."""
    return fit_columns("dlrover_rm", _columns, workload, observations)


def _columns(workload: Workload, configurations: ConfigurationArray) -> Mapping[str, npt.NDArray[np.float64]]:
    """T = [a1 m / cw + b1] + [a2 w / (p cp) + b2] + [a3 (M / p) / (B / w) + b3] + [a4 m D / p + b4]: computing, updates
    at the PS, synchronising the dense part, looking embeddings up. "constant" is b1 + b2 + b3 + b4. In sync mode m is
    what one worker computes."""
    workers, servers, worker_cores, server_cores = configurations.T
    batch = workload.batch_size / (workers if workload.mode == "sync" else np.ones_like(workers))
    dense_s = (workload.dense_bytes or 1.0) / (workload.bandwidth_bytes_per_s or 1.0)
    return {
        "compute": batch / worker_cores,
        "update": workers / (servers * server_cores),
        "synchronise": dense_s * workers / servers,
        "lookup": batch * (workload.row_bytes or SAMPLE_BYTES) / servers,
        "constant": np.ones_like(workers),
    }
