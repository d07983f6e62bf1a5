"""Recorded jobs as worlds with constant speeds: the speed of a configuration is the mean of all its blocks, and the
timings of its processes fit that speed. Pure.

`search.recorded_worlds` gives each visit one of the blocks, which differ by 10 % because the machine changed between
the rounds. Within the minutes of a run a machine changes less; here a visit has an error of 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.queueing.job_speed import IterationSpeed
from benchmarks.tuner.search.recorded_worlds import Recorded, RecordedTruth, recorded_worlds
from benchmarks.tuner.search.world import Costs, Met
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, ConfigurationArray, Workload
from elastichost.tuner.policy.candidates import Bounds

__all__ = ["RETAIL", "Still", "StillTruth", "still_worlds"]

VISIT, TIMED = 0.02, 0.03  # log standard deviations: of the speed of one visit, of its timings
Floats = npt.NDArray[np.float64]


class Still(msgspec.Struct, frozen=True):
    """A world with constant speeds. faster: samples/s of some (workers, servers, worker_cores) that replace the speeds
    of the grid; all other speeds are scaled like the first of them."""

    of: Recorded
    faster: tuple[tuple[int, int, int, float], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.of.name}, as seen" if self.faster else self.of.name

    @property
    def workload(self) -> Workload:
        return self.of.workload

    @property
    def bounds(self) -> Bounds:
        return self.of.bounds

    @property
    def default(self) -> Configuration:
        return self.of.default

    def draw(self, random: np.random.Generator) -> tuple[Costs, float, float]:
        """Draws the noise of windows as in live runs on two cores, from quiet to disturbed."""
        _, _, rho = self.of.draw(random)
        return Costs(), math.exp(random.uniform(math.log(0.04), math.log(0.25))), rho

    def features(self, seed: int, costs: Costs) -> JobFeatures:
        return self.of.features(seed, costs)

    def truth(self, costs: Costs) -> StillTruth:
        return StillTruth(self, self.of.truth(costs))


class StillTruth(msgspec.Struct, frozen=True):
    """Implements `search.world.Truth`."""

    of: Still
    recorded: RecordedTruth

    @property
    def workload(self) -> Workload:
        return self.of.workload

    @property
    def log_error(self) -> float:
        return 0.0

    def speed(self, configuration: Configuration) -> float:
        return self.recorded.speed(configuration) * _factor(self.of, _sizes(configuration))

    def speeds(self, configurations: ConfigurationArray) -> Floats:
        rows = configurations.astype(int).tolist()
        return np.array([self.speed(Configuration(*row)) for row in rows], dtype=np.float64)

    def met(self, configuration: Configuration, random: np.random.Generator) -> Met:
        """A visit with timings that fit its speed: a faster job has shorter computing times."""
        mean, hot_share = self.recorded.mean(configuration)
        slower = mean.samples_per_s / self.speed(configuration)
        factor = slower * math.exp(TIMED * random.standard_normal())
        timed = {
            name: getattr(mean, name) * (1.0 if name == "bytes_moved" else factor)
            for name in mean.__struct_fields__
            if name != "samples_per_s"
        }
        speed = self.speed(configuration) * math.exp(VISIT * random.standard_normal())
        # not recorded, so estimated: the CPU time of the process minus the most that its reader can have used
        training_s = min(timed["compute_s"], max(0.0, timed["worker_cpu_s"] - timed["reader_s"]))
        return Met(IterationSpeed(speed, **timed), hot_share, training_s)


def _sizes(configuration: Configuration) -> tuple[int, int, int]:
    return configuration.workers, configuration.servers, configuration.worker_cores


@lru_cache(maxsize=64)
def _factors(of: Still) -> Mapping[tuple[int, int, int], float]:
    truth = of.of.truth(Costs())
    return {
        (workers, servers, cores): speed / truth.speed(Configuration(workers, servers, cores))
        for workers, servers, cores, speed in of.faster
    }


def _factor(of: Still, sizes: tuple[int, int, int]) -> float:
    factors = _factors(of)
    return factors.get(sizes, next(iter(factors.values()), 1.0))


# from a live run on two cores: two workers train 410,000 samples/s and compute nearly all the time; one trains half
RETAIL = Still(Recorded("grid-2core", "retail-direct-512"), ((2, 1, 1, 410_000.0), (1, 1, 1, 214_000.0)))


def still_worlds() -> tuple[Still, ...]:
    """The worlds of all recorded jobs, and RETAIL."""
    return (RETAIL, *(Still(one) for one in recorded_worlds()))
