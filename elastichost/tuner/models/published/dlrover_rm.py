"""The resource-performance model of DLRover-RM as published: an iteration is a sum of four times. Pure.

Source: Wang et al., DLRover-RM: Resource Optimization for Deep Recommendation Models Training in the Cloud, PVLDB
17(12), 2024. Within one job the batch, the dense bytes, the dimension and the bandwidth are constant. So the four
constants b1 to b4 are one parameter, and columns that differ only by a constant factor cannot be separated. The rank is
at most 5, 3 if cores never change, and 2 if only the number of workers changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Workload
from elastichost.tuner.models.linear import LinearFit, fit_columns

__all__ = ["fit"]

SAMPLE_BYTES = 4.0  # row bytes of a sample if the workload has none; the unit of a column does not change predictions


def fit(workload: Workload, observations: Sequence[Observation]) -> LinearFit:
    """Fits the model. Raises ValueError as `base.checked`."""
    return fit_columns("dlrover_rm", _columns, workload, observations)


def _columns(workload: Workload, configurations: ConfigurationArray) -> Mapping[str, npt.NDArray[np.float64]]:
    """The columns of the iteration time in seconds,

        T = [a1 m / cw + b1] + [a2 w / (p cp) + b2] + [a3 (M / p) / (B / w) + b3] + [a4 m D / p + b4]

    for computing, updates at the PS, synchronisation of the dense part, and lookup of embeddings.

    m: samples of a batch; in sync mode the part of one worker. w, p: workers, PS. cw, cp: cores of each worker and PS.
    M: bytes of the dense part. B: bandwidth in bytes/s. D: row bytes of a sample. a1 to a4: coefficients. The column
    "constant" has the coefficient b1 + b2 + b3 + b4.
    """
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
