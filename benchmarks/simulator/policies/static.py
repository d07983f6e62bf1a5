"""Configurations that stay while a job runs, as users choose them: by guess, or by trying all of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.simulator.cluster.jobs import SimulatedJob
from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit
from benchmarks.simulator.policies.configurations import candidates, cores_of
from elastichost.tuner.facts import Configuration, ConfigurationArray

__all__ = ["StaticPolicy", "TunedStaticPolicy", "best_configuration"]

AS_GOOD = 0.98  # share of the best speed; of the configurations that reach it, the one with the fewest cores is chosen
MEMORY_MARGIN = 1.1


class StaticPolicy:
    """Every job runs with the configuration and the memory that its user requested, until it ends or was killed too
    often."""

    name = "static"

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        return admit(view, FreeCapacity(view), lambda job: Grant(job.request, job.requested_memory_bytes))


class TunedStaticPolicy:
    """The well-tuned manual configuration: the best static one within the user's share of cores, found by enumeration
    of the true speeds. The memory is that at the job's end plus a tenth. Nothing changes while the job runs."""

    name = "tuned"

    def __init__(self, jobs: Mapping[int, SimulatedJob]) -> None:
        """jobs: the truth about all jobs that will arrive."""
        self._jobs = jobs
        self._array: ConfigurationArray | None = None
        self._known: dict[int, Grant] = {}

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        for one in view.ended:
            self._known.pop(one.view.job, None)
        return admit(view, FreeCapacity(view), lambda job: self._grant(view, job))

    def _grant(self, view: ClusterView, job: JobView) -> Grant:
        found = self._known.get(job.job)
        if found is None:
            if self._array is None:
                self._array = candidates(view.limits)
            spec = self._jobs[job.job]
            configuration = best_configuration(spec, self._array, spec.share_cores)
            memory = MEMORY_MARGIN * spec.memory.used_bytes(float(spec.samples), configuration)
            found = self._known[job.job] = Grant(configuration, int(memory))
        return found


def best_configuration(spec: SimulatedJob, array: ConfigurationArray, cores: int) -> Configuration:
    """Returns the configuration with the fewest cores that is about as fast as the fastest within `cores` cores. array:
    float64 [n, 4]."""
    needed = cores_of(array)
    allowed = array[needed <= cores]
    speeds = spec.truth.speeds(allowed)
    good = np.flatnonzero(speeds >= AS_GOOD * speeds.max())
    chosen = good[np.lexsort((-speeds[good], cores_of(allowed)[good]))[0]]
    return Configuration(*(int(value) for value in allowed[chosen]))
