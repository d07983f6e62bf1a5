"""A true speed that departs smoothly from the one of a table, so that no model of a tuner has its form. Pure.

    speed'(x) = speed(x) * exp(sqrt(2) size sin(phase + sum over axes a of slope[a] log2 x[a]))

x: workers, PS, cores of a worker, cores of a PS. The logarithm of the factor has the standard deviation `size` over all
phases. The times that processes measure stay those of the table, so they do not explain the departure.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.queueing.job_speed import IterationSpeed, SpeedOracle
from elastichost.tuner.facts import Configuration, ConfigurationArray, Workload

__all__ = ["SLOPES", "MisfitSpeed", "misfit"]

Floats = npt.NDArray[np.float64]
SLOPES = (0.3, 1.0)  # radians for each doubling: a period is six to twenty doublings, so speeds rarely fall


class MisfitSpeed(msgspec.Struct, frozen=True):
    """The departing speed of one job. size: standard deviation of the logarithm. slopes: of the four axes."""

    truth: SpeedOracle
    size: float
    phase: float
    slopes: tuple[float, float, float, float]

    @property
    def workload(self) -> Workload:
        return self.truth.workload

    @property
    def skew(self) -> float:
        return self.truth.skew

    def speed(self, configuration: Configuration, skew: float | None = None) -> IterationSpeed:
        found = self.truth.speed(configuration, skew)
        c = configuration
        factor = self._factors(np.array([[c.workers, c.servers, c.worker_cores, c.server_cores]], dtype=np.float64))
        return msgspec.structs.replace(found, samples_per_s=found.samples_per_s * float(factor[0]))

    def speeds(self, configurations: ConfigurationArray, skew: float | None = None) -> Floats:
        found: Floats = self.truth.speeds(configurations, skew) * self._factors(configurations)
        return found

    def _factors(self, configurations: ConfigurationArray) -> Floats:
        angle = self.phase + np.log2(configurations) @ np.array(self.slopes)
        found: Floats = np.exp(math.sqrt(2) * self.size * np.sin(angle))
        return found


def misfit(truth: SpeedOracle, size: float, seed: int, family: str) -> MisfitSpeed:
    """The departing speed of a job of a family; alike for all jobs of the family, as its costs are."""
    random = np.random.default_rng((seed, zlib.crc32(family.encode())))
    slopes: Sequence[float] = (random.uniform(*SLOPES, 4) * random.choice((-1.0, 1.0), 4)).tolist()
    return MisfitSpeed(truth, size, float(random.uniform(0, 2 * math.pi)), (slopes[0], slopes[1], slopes[2], slopes[3]))
