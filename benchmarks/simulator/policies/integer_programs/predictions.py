"""The configurations of a job among which an integer program chooses, with their predicted speeds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import ClusterView, EndedJob, JobView
from benchmarks.simulator.policies.admission import least_servers, requested_memory
from benchmarks.simulator.policies.configurations import cores_of
from benchmarks.simulator.policies.merged_observations import MergedObservations
from elastichost.tuner.facts import Configuration, ConfigurationArray, as_array
from elastichost.tuner.models.registry import fit
from elastichost.tuner.policy.candidates import as_configurations
from elastichost.tuner.policy.frontier import thinned

__all__ = ["SMALLEST", "PredictedOptions", "Predictions", "Reach"]

Model = Literal["optimus", "dlrover_rm"]
Reach = tuple[int, int]  # the most workers and PS
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of workers and of PS
OPTIONS = 24
SMALLEST = (1, 1)  # workers, PS
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PredictedOptions:
    """The options of one job in order of cost. speeds: samples/s, float64 [n]. memory_bytes: that the job gets, float64
    [n]. present: the option that runs."""

    configurations: tuple[Configuration, ...]
    speeds: Floats
    cores: Floats
    memory_bytes: Floats
    present: int


class Predictions:
    """The options of every job, from a model that is fitted to its observations. Each process has the cores that its
    user requested; the numbers of workers and PS are COUNTS."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._digests = MergedObservations()
        self._known: dict[int, tuple[object, PredictedOptions]] = {}

    def forget(self, ended: Iterable[EndedJob]) -> None:
        """Forgets jobs that have ended."""
        over = tuple(ended)
        self._digests.forget(over)
        for one in over:
            self._known.pop(one.view.job, None)

    def seen(self, job: JobView) -> Mapping[Configuration, object]:
        """The configurations of the job that were measured."""
        return self._digests.update(job)

    def of(self, view: ClusterView, job: JobView, running: Configuration, reach: Reach) -> PredictedOptions:
        """The frontier of predicted speed and cores within the reach, and the running configuration with its measured
        speed if it has one. The job must have observations."""
        seen = self._digests.update(job)
        key = MergedObservations.age(job, seen), running, reach
        known = self._known.get(job.job)
        if known is not None and known[0] == key:
            return known[1]
        array = _counted(view, job, reach)
        fitted = fit(self._model, job.workload, tuple(seen.values()))
        speeds = np.maximum(fitted.predict(array).samples_per_s, 1e-9)
        kept = thinned(speeds, cores_of(array), OPTIONS)
        options = [*as_configurations(array[kept])]
        rates = speeds[kept].tolist()
        if running not in options:
            options.append(running)
            rates.append(float(np.maximum(fitted.predict(as_array([running])).samples_per_s[0], 1e-9)))
        present = options.index(running)
        if running in seen:
            rates[present] = max(seen[running].samples_per_s, 1e-9)
        found = PredictedOptions(
            configurations=tuple(options),
            speeds=np.array(rates),
            cores=np.array([one.cores for one in options], dtype=np.float64),
            memory_bytes=np.array([requested_memory(job, one) for one in options], dtype=np.float64),
            present=present,
        )
        self._known[job.job] = key, found
        return found


def _counted(view: ClusterView, job: JobView, reach: Reach) -> ConfigurationArray:
    """The configurations with the user's cores, float64 [n, 4]; PS as many as the memory needs at least."""
    least, most, request = view.limits.least, view.limits.most, job.request
    fewest = min(least_servers(view, job.requested_memory_bytes), most.servers)
    workers = [count for count in COUNTS if least.workers <= count <= min(most.workers, reach[0])]
    servers = [count for count in COUNTS if fewest <= count <= min(most.servers, max(reach[1], fewest))]
    rows = product(workers or [least.workers], servers or [fewest])
    return as_array([Configuration(*row, request.worker_cores, request.server_cores) for row in rows])
