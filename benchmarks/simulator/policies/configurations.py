"""The configurations among which a policy chooses, within the limits. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import GrantLimits
from elastichost.tuner.facts import Configuration, ConfigurationArray
from elastichost.tuner.policy.candidates import Bounds, enumerate_candidates

__all__ = ["candidates", "clamped", "cores_of"]


def clamped(
    limits: GrantLimits, workers: float, servers: float, worker_cores: float, server_cores: float
) -> Configuration:
    """Returns the nearest configuration within the limits."""
    low, high = limits.least, limits.most
    return Configuration(
        workers=int(min(max(workers, low.workers), high.workers)),
        servers=int(min(max(servers, low.servers), high.servers)),
        worker_cores=int(min(max(worker_cores, low.worker_cores), high.worker_cores)),
        server_cores=int(min(max(server_cores, low.server_cores), high.server_cores)),
    )


def cores_of(array: ConfigurationArray) -> npt.NDArray[np.float64]:
    """Total cores of configurations, float64 [n], for float64 [n, 4]."""
    total: npt.NDArray[np.float64] = array[:, 0] * array[:, 2] + array[:, 1] * array[:, 3]
    return total


def candidates(limits: GrantLimits, cores: Sequence[int] = (1, 2, 4, 8)) -> ConfigurationArray:
    """All configurations within the limits with these numbers of cores per process, float64 [n, 4], in lexicographic
    order."""
    array = enumerate_candidates(Bounds(limits.least, limits.most, share_cores=False))
    kept: ConfigurationArray = array[np.isin(array[:, 2], cores) & np.isin(array[:, 3], cores)]
    return kept
