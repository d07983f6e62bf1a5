"""Worlds with known true speeds, and jobs in them: families of similar jobs with different costs. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.queueing.job_speed import IterationSpeed
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, ConfigurationArray, Workload, as_array
from elastichost.tuner.policy.acquisition import DecisionCosts, price_of
from elastichost.tuner.policy.candidates import Bounds, enumerate_candidates

__all__ = ["NEAR", "Costs", "Family", "Job", "Met", "Truth", "World", "draw_family", "draw_job"]

NEAR = math.log(1 / 0.95)  # largest distance to the best of the space, in (log speed - price of cores)
SPREAD = 0.1  # log standard deviation of the costs between jobs of a family
Floats = npt.NDArray[np.float64]


class Costs(msgspec.Struct, frozen=True):
    """Factors on all times, on computing, and on the work of the PS."""

    time: float = 1.0
    compute: float = 1.0
    server: float = 1.0

    def times(self, other: Costs) -> Costs:
        return Costs(self.time * other.time, self.compute * other.compute, self.server * other.server)


class Met(msgspec.Struct, frozen=True):
    """The facts of one visit to a configuration: its speed, its timings, the load share of the busiest PS.
    training_cpu_s: CPU time of a worker's training thread for an iteration; 0 if not known."""

    speed: IterationSpeed
    hot_share: float
    training_cpu_s: float = 0.0


class Truth(Protocol):
    """The true speeds of one job."""

    @property
    def workload(self) -> Workload: ...

    @property
    def log_error(self) -> float:
        """The standard error of the logarithms of the true speeds; 0 if they are exact."""
        ...

    def speed(self, configuration: Configuration) -> float:
        """The true speed in samples/s."""
        ...

    def speeds(self, configurations: ConfigurationArray) -> Floats:
        """The true speeds in samples/s, float64 [n], for configurations float64 [n, 4]."""
        ...

    def met(self, configuration: Configuration, random: np.random.Generator) -> Met:
        """The facts of one visit."""
        ...


class World(Protocol):
    """A world in which jobs run. Hashable. default: the first configuration of a job without history."""

    def __hash__(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def bounds(self) -> Bounds: ...
    @property
    def default(self) -> Configuration: ...

    def draw(self, random: np.random.Generator) -> tuple[Costs, float, float]:
        """Draws a family: its costs, and the coefficient of variation and lag-1 autocorrelation of its windows."""
        ...

    def features(self, seed: int, costs: Costs) -> JobFeatures: ...
    def truth(self, costs: Costs) -> Truth: ...


class Family(msgspec.Struct, frozen=True):
    """A family of similar jobs. cov, rho: coefficient of variation and autocorrelation of windows."""

    world: World
    seed: int
    costs: Costs
    cov: float
    rho: float

    @property
    def features(self) -> JobFeatures:
        return self.world.features(self.seed, self.costs)


@dataclass(frozen=True, slots=True)
class Job:
    """One job. space: all configurations, float64 [n, 4]. speeds: their true samples/s, float64 [n]. worth: log speed
    minus the price of the cores, float64 [n], which the policy maximises."""

    family: Family
    truth: Truth
    space: ConfigurationArray
    speeds: Floats
    worth: Floats
    costs: DecisionCosts
    seed: int

    def speed(self, configuration: Configuration) -> float:
        return self.truth.speed(configuration)

    def behind(self, configuration: Configuration) -> float:
        """The distance of a configuration's worth to the best of the space; 0 for the best."""
        price = float(price_of(as_array([configuration]), self.costs)[0])
        return float(self.worth.max()) - (math.log(self.speed(configuration)) - price)

    @property
    def best(self) -> Configuration:
        return Configuration(*(int(x) for x in self.space[int(np.argmax(self.worth))]))


def draw_family(of: World, seed: int) -> Family:
    """Draws a family of jobs. The same world and seed give the same family."""
    costs, cov, rho = of.draw(np.random.default_rng((seed, 11, *of.name.encode())))
    return Family(of, seed, costs, cov, rho)


def draw_job(family: Family, seed: int, min_gain: float, dearer: Costs | None = None) -> Job:
    """Draws a job of the family; its costs differ a little. min_gain: price of cores, as in `TunerSettings`. dearer:
    additional factors on the family's costs."""
    jitter = np.exp(SPREAD * np.random.default_rng((family.seed, seed, 12)).standard_normal(3)).tolist()
    of = family.world
    truth = of.truth(family.costs.times(Costs(*jitter)).times(dearer or Costs()))
    space, bounds = _space(of), of.bounds
    speeds = truth.speeds(space)
    costs = DecisionCosts(0.0, 0.0, 0.0, min_gain, bounds.cores or bounds.most.cores)
    return Job(family, truth, space, speeds, np.log(speeds) - price_of(space, costs), costs, seed)


@lru_cache(maxsize=64)
def _space(of: World) -> ConfigurationArray:
    return enumerate_candidates(of.bounds)
