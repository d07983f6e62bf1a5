"""The dispatcher's estimates of simulated jobs: speeds and demand rows with errors that shrink with measurements, and
peaks of memory with constant errors. Pure.

    estimate = true * exp(PRIOR_LOG_SD * z / (1 + t / 1 s) + MEASURED_LOG_SD * z')

for each family on the CPU or on a GPU. t: seconds of measurement. z, z': standard normal. The prior has the weight of
one second of measurement, as in the dispatcher (`dispatcher.core.demands`), and jobs of one family share measurements.
A measurement beside other jobs is as good as one alone, because the CPU time of a sample is the same. The kind follows
from the estimates (`kinds.kind_of`), so it may be wrong at first.

For a GPU the busy time is measured, as by events or a driver, and not how much of the GPU a kernel fills. With MPS,
rows can therefore demand more than the capacity.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.random_streams import generator
from benchmarks.simulator.colocation import calibration
from benchmarks.simulator.colocation.interference import InterferenceModel
from benchmarks.simulator.colocation.jobs import JobBatch, JobFamily
from elastichost.tuner.colocation.facts import RESOURCES, JobDemand, Mode
from elastichost.tuner.colocation.kinds import Kind, kind_of

__all__ = ["DispatcherBeliefs", "FamilyBelief", "true_demand"]

Floats = npt.NDArray[np.float64]
PRIOR_WORTH_S = 1.0
SPEED, WAIT = len(RESOURCES), len(RESOURCES) + 1  # columns of errors, after those of the resources


class FamilyBelief(msgspec.Struct, frozen=True):
    """The estimates of a family. kind: of its fastest mode."""

    modes: tuple[Mode, ...]
    kind: Kind


class DispatcherBeliefs:
    """The estimates of all families of a batch, and the seconds of their measurements."""

    def __init__(self, batch: JobBatch, truth: InterferenceModel, doubt: float = 1.0) -> None:
        """doubt: factor on the errors of speeds and demands, not on those of memory."""
        self._truth, self._seed, self._doubt = truth, batch.seed, doubt
        self._seconds: dict[tuple[int, bool], float] = {}
        self._errors: dict[tuple[int, bool], Floats] = {}
        self._known: dict[int, tuple[tuple[float, float], FamilyBelief]] = {}

    def learn(self, family: JobFamily, is_gpu: bool, seconds: float) -> None:
        """Records `seconds` seconds of measurement of a family."""
        key = (family.family, is_gpu)
        self._seconds[key] = self._seconds.get(key, 0.0) + seconds

    def is_measured(self, family: JobFamily, is_gpu: bool) -> bool:
        return self._seconds.get((family.family, is_gpu), 0.0) > PRIOR_WORTH_S

    def of(self, family: JobFamily) -> FamilyBelief:
        seconds = (self._seconds.get((family.family, False), 0.0), self._seconds.get((family.family, True), 0.0))
        before = self._known.get(family.family)
        if before is None or before[0] != seconds:
            before = self._known[family.family] = (seconds, self._worked_out(family))
        return before[1]

    def _worked_out(self, family: JobFamily) -> FamilyBelief:
        modes, waits = list[Mode](), list[float]()
        for size in family.sizes:
            alone = self._truth.alone(family, size)
            factors = self._factors(family.family, size.is_gpu)
            row = tuple(min(1.0, share * factor) for share, factor in zip(alone.demand, factors, strict=False))
            waits.append(max(0.0, 1 - (1 - alone.wait_share) * factors[WAIT]))
            modes.append(
                Mode(
                    workers=size.threads,
                    servers=1,
                    worker_cores=1,
                    samples_per_s=alone.samples_per_s * factors[SPEED],
                    demand=row,
                    memory_bytes=round(size.host_bytes * family.estimate),
                    gpu_memory_bytes=round(size.gpu_bytes * family.estimate),
                )
            )
        fastest = max(range(len(modes)), key=lambda index: modes[index].samples_per_s)
        return FamilyBelief(tuple(modes), kind_of(modes[fastest].demand, waits[fastest]))

    def _factors(self, family: int, is_gpu: bool) -> list[float]:
        """Estimate / true value of each resource, of the speed, and of the time that is not spent waiting."""
        key = (family, is_gpu)
        if key not in self._errors:
            random = generator(self._seed, "incidents", 2 * family + is_gpu)
            self._errors[key] = random.standard_normal((2, len(RESOURCES) + 2))
        prior, measured = self._errors[key].tolist()
        before = calibration.PRIOR_LOG_SD / (1 + self._seconds.get(key, 0.0) / PRIOR_WORTH_S)
        logs = (before * z + calibration.MEASURED_LOG_SD * y for z, y in zip(prior, measured, strict=True))
        return [math.exp(self._doubt * log) for log in logs]


def true_demand(job: str, family: JobFamily, truth: InterferenceModel, lasts_s: float) -> JobDemand:
    """The true demand of a job, for the bound: shares of the capacity of each resource, and the mean memory over its
    work, because the peaks of several jobs need not coincide."""
    alone = [truth.alone(family, size) for size in family.sizes]
    modes = tuple(
        Mode(
            workers=size.threads,
            servers=1,
            worker_cores=1,
            samples_per_s=one.samples_per_s,
            demand=one.used,
            memory_bytes=round(size.host_bytes * family.mean_share_of_peak),
            gpu_memory_bytes=round(size.gpu_bytes * family.mean_share_of_peak),
        )
        for size, one in zip(family.sizes, alone, strict=True)
    )
    return JobDemand(job, family.kind, modes, lasts_s * max(one.samples_per_s for one in alone))
