"""What users ask for: drawn at random, sensible, or well tuned. Pure.

random     as the jobs are drawn: a log-uniform configuration within the user's share of cores, and 0.8 to 5 times the
           memory that the job needs
sensible   what a careful user finds out in an afternoon. Cores: sixteen short trials with PILOT workers and PS, one for
           each pair of 1, 2, 4 or 8 cores for a worker and for a PS; the pair with the largest speed^2 / cores wins,
           that is, cores are doubled as long as the job becomes 1.4 times as fast. Numbers: trials in doublings; the
           fewest cores that reach GOOD of the fastest within the share. Memory: the peak of an earlier run, and a
           quarter more
tuned      the best static configuration within the user's share, of all, by the true speeds; its memory is the peak and
           a tenth more
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Literal, get_args

import msgspec
import numpy as np

from benchmarks.simulator.cluster.jobs import REQUEST_CORES, SimulatedJob
from benchmarks.simulator.cluster.views import GrantLimits
from benchmarks.simulator.policies.configurations import candidates, cores_of
from benchmarks.simulator.policies.static import MEMORY_MARGIN, best_configuration
from elastichost.tuner.facts import Configuration, ConfigurationArray, as_array

__all__ = ["DESCRIPTIONS", "KINDS", "RequestKind", "requested"]

RequestKind = Literal["random", "sensible", "tuned"]
KINDS: tuple[RequestKind, ...] = get_args(RequestKind)
# what the policies are given, in the words of the tables
DESCRIPTIONS: Mapping[RequestKind, str] = {
    "random": "Users ask for a configuration drawn at random and for 0.8 to 5 times the memory",
    "sensible": "Users ask for what a few short trials recommend, and for the peak of memory and a quarter",
    "tuned": "Users ask for the best static configuration of all, and for the peak of memory and a tenth",
}
PILOT = (4, 2)  # workers, PS
DOUBLINGS = (1, 2, 4, 8, 16, 32)
GOOD = 0.9
SENSIBLE_MEMORY = 1.25


def requested(jobs: Sequence[SimulatedJob], kind: RequestKind, limits: GrantLimits) -> tuple[SimulatedJob, ...]:
    """The same jobs with requests of that kind."""
    if kind == "random":
        return tuple(jobs)
    array = candidates(limits)
    if kind == "tuned":
        return tuple(_asking(job, best_configuration(job, array, job.share_cores), MEMORY_MARGIN) for job in jobs)
    return tuple(_asking(job, _sensible(job, array), SENSIBLE_MEMORY) for job in jobs)


def _asking(job: SimulatedJob, request: Configuration, margin: float) -> SimulatedJob:
    memory = int(margin * job.memory.used_bytes(float(job.samples), request))
    return msgspec.structs.replace(job, request=request, requested_memory_bytes=memory)


def _sensible(job: SimulatedJob, array: ConfigurationArray) -> Configuration:
    """array: all configurations within the limits, float64 [n, 4]."""
    pairs = as_array([Configuration(*PILOT, *pair) for pair in product(REQUEST_CORES, repeat=2)])
    cores = pairs[int(np.argmax(job.truth.speeds(pairs) ** 2 / cores_of(pairs)))][2:]
    is_tried = np.isin(array[:, 0], DOUBLINGS) & np.isin(array[:, 1], DOUBLINGS) & (array[:, 2:] == cores).all(axis=1)
    tried = array[is_tried & (cores_of(array) <= job.share_cores)]
    speeds = job.truth.speeds(tried)
    needed = np.where(speeds >= GOOD * speeds.max(), cores_of(tried), np.inf)
    return Configuration(*(int(value) for value in tried[int(np.argmin(needed))]))
