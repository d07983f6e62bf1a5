"""A job alone in a world whose truth is known, as the tuner's policy sees one: looks every half second. Pure.

Speeds come from the queue simulator: of a cluster from its recorded tables, of a shared host from a lattice simulated
here. Rates of windows are log-AR(1) noise about them, with a coefficient of variation out of the calibration's mix.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.job_features import JobFeatures
from elastichost.simulator import calibration as world
from elastichost.simulator.scenarios import Scenario, scenario
from elastichost.simulator.tables import point, tables
from elastichost.simulator.truth import JobTruth, SpeedTable
from elastichost.tuner.candidates import Bounds, enumerate_candidates
from elastichost.tuner.choice import Stakes, price_of
from elastichost.tuner.facts import Configuration, ConfigurationArray, as_array
from elastichost.tuner.profile import Look, Totals

__all__ = [
    "NEAR",
    "WORLDS",
    "Change",
    "Course",
    "Family",
    "Job",
    "Policy",
    "Visit",
    "World",
    "draw_family",
    "draw_job",
    "drive",
]

LOOK_S = 0.5
TRIAL_S = 45.0  # what has run for longer is no trial
CHANGE_S = (0.2, 0.5)  # measured: from the request until what runs is what is wanted
NEAR = math.log(1 / 0.95)  # of the best of the space, in log speed less the price of its cores
SPREAD = 0.1  # log standard deviation of the costs of one job of a family against another
OVERSUBSCRIPTION, DIRECT_SERVERS = 2.0, 4  # as `supervisor.tuner_settings`
Floats = npt.NDArray[np.float64]


class World(msgspec.Struct, frozen=True):
    """host_cores: that all processes share; 0: a cluster, where each has its own. quota: cores of the cluster that the
    job may have; 0: as many as its processes can."""

    scenario: str
    host_cores: int = 0
    quota: int = 0

    @property
    def name(self) -> str:
        if self.host_cores:
            return f"{self.scenario.partition('_')[0]}, {self.host_cores} cores"
        return f"{self.scenario}, {self.quota} cores" if self.quota else self.scenario

    @property
    def bounds(self) -> Bounds:
        """A cluster: 1..32 workers, 1..16 PS, 1..8 cores each. A host: as the supervisor bounds a job that leaves all
        open."""
        if not self.host_cores:
            return Bounds(Configuration(1, 1), Configuration(32, 16, 8, 8), cores=self.quota, share_cores=False)
        cores = self.host_cores
        servers = DIRECT_SERVERS if self.base.workload.access == "direct" else cores
        return Bounds(
            Configuration(1, 1),
            Configuration(int(OVERSUBSCRIPTION * cores), servers, cores),
            cores=cores,
            oversubscription=OVERSUBSCRIPTION,
        )

    @property
    def base(self) -> Scenario:
        """Its costs; on a host of another size the memory carries as many more threads."""
        found = scenario(self.scenario)
        if not self.host_cores:
            return found
        larger = self.host_cores / found.workload.host_cores
        workload = msgspec.structs.replace(found.workload, host_cores=self.host_cores)
        return msgspec.structs.replace(found, workload=workload, memory_threads=found.memory_threads * larger)

    @property
    def default(self) -> Configuration:
        """What a job starts with that nothing is known of: a worker for each core of a host and one PS, as
        `cold_start` does; of a cluster the simulator's reference, or what of it the quota allows."""
        return Configuration(self.host_cores, 1) if self.host_cores else Configuration(8, 4, 2, 2)


CLUSTERS = (
    "compute_bound",
    "server_bound",
    "network_bound",
    "reader_bound",
    "hot_server",
    "unpipelined",
    "sync_stragglers",
    "bounded_noisy",
)
HOSTS = (("direct_small_host", 2), ("direct_small_host", 16), ("direct_small_host", 64), ("served_small_host", 16))
QUOTAS = (("compute_bound", 64), ("server_bound", 64), ("sync_stragglers", 64))
WORLDS = (
    *(World(name) for name in CLUSTERS),
    *(World(name, quota=cores) for name, cores in QUOTAS),
    *(World(name, host_cores=cores) for name, cores in HOSTS),
)


# --- jobs -------------------------------------------------------------------------------------------------------------


class Family(msgspec.Struct, frozen=True):
    """Jobs of one kind. scales: time, computing, work of the PS, against the scenario's; cov, rho: of windows."""

    world: World
    seed: int
    scales: tuple[float, float, float]
    cov: float
    rho: float

    @property
    def features(self) -> JobFeatures:
        workload, compute, server = self.world.base.workload, self.scales[1], self.scales[2]
        return JobFeatures(
            family=f"{self.world.scenario}_{self.seed}:build",
            name=f"{self.world.scenario}_{self.seed}",
            tables=26,
            rows=10_000_000,
            mean_dim=round(16 * server),
            ids_per_sample=workload.ids_per_sample,
            dense_bytes=int(workload.dense_bytes * compute),
            batch_size=workload.batch_size,
            mode=workload.mode,
            access=workload.access,
            host_cores=workload.host_cores,
        )


@dataclass(frozen=True, slots=True)
class Job:
    """space: all configurations, float64 [n, 4]; speeds: their true samples/s, float64 [n]; worth: log speed less the
    price of the cores, float64 [n], which is what the policy maximises."""

    family: Family
    truth: JobTruth
    space: ConfigurationArray
    speeds: Floats
    worth: Floats
    stakes: Stakes
    seed: int

    def speed(self, configuration: Configuration) -> float:
        return self.truth.speed(configuration).samples_per_s

    def behind(self, configuration: Configuration) -> float:
        """How much worse than the best of the space; 0: it is the best."""
        price = float(price_of(as_array([configuration]), self.stakes)[0])
        return float(self.worth.max()) - (math.log(self.speed(configuration)) - price)

    @property
    def best(self) -> Configuration:
        return Configuration(*(int(x) for x in self.space[int(np.argmax(self.worth))]))


def draw_family(of: World, seed: int) -> Family:
    random = np.random.default_rng((seed, 11, *of.name.encode()))
    scales = np.exp(random.uniform(np.log((0.5, 0.6, 0.6)), np.log((2.0, 1.8, 1.8)))).tolist()
    low, high = _cov_class(random.random())
    cov, rho = math.exp(random.uniform(math.log(low), math.log(high))), random.uniform(*world.NOISE_RHO)
    return Family(of, seed, tuple(scales), cov, rho)


def _cov_class(uniform: float) -> tuple[float, float]:
    shares = np.cumsum([share for share, _, _ in world.COV_CLASSES])
    return world.COV_CLASSES[min(int(np.searchsorted(shares, uniform)), len(shares) - 1)][1:]


def draw_job(family: Family, seed: int, min_gain: float, costs: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Job:
    """One of the family: its costs are a little others. min_gain: prices cores, as in `TunerSettings`; costs: time,
    computing and work of the PS are so many times the family's."""
    jitter = np.exp(SPREAD * np.random.default_rng((family.seed, seed, 12)).standard_normal(3)).tolist()
    time_s, compute, server = (a * b * c for a, b, c in zip(family.scales, jitter, costs, strict=True))
    of = family.world
    if of.host_cores:
        truth = JobTruth(_host_table(of, round(compute, 6), round(server, 6)), time_s)
    else:
        truth = JobTruth(tables()[of.scenario], time_s, compute, server)
    space = _space(of)
    speeds = truth.speeds(space)
    bounds = of.bounds
    stakes = Stakes(0.0, 0.0, 0.0, min_gain, bounds.cores or bounds.most.cores)
    return Job(family, truth, space, speeds, np.log(speeds) - price_of(space, stakes), stakes, seed)


@lru_cache(maxsize=32)
def _space(of: World) -> ConfigurationArray:
    return enumerate_candidates(of.bounds)


@lru_cache(maxsize=512)
def _host_table(of: World, compute: float, server: float) -> SpeedTable:
    """Simulated at powers of two and half-way between; where the host is full there is a point."""
    costs = of.base
    scaled = {name: getattr(costs, name) * compute for name in ("serial_s", "sample_s")}
    scaled |= {
        name: getattr(costs, name) * server for name in ("pull_sample_s", "push_sample_s", "request_s", "dense_s")
    }
    costs = msgspec.structs.replace(costs, **scaled)
    most = of.bounds.most
    workers = _levels(most.workers)
    servers = _powers(most.servers)
    cores = sorted({*(n for n in (1, 2, 3, 4) if n <= most.worker_cores), most.worker_cores})
    axes = (workers, servers, cores, (1, 2), (0.0, 1.0))  # one core a PS, no skew: the last two are not used
    logs = np.empty((len(workers), len(servers), len(cores), 2, 2, 7))
    for w, p, c in product(range(len(workers)), range(len(servers)), range(len(cores))):
        logs[w, p, c] = point(costs, Configuration(workers[w], servers[p], cores[c]), costs.skew)
    return SpeedTable(of.name, costs.workload, 0.0, axes, logs)


def _powers(most: int) -> list[int]:
    return sorted({*(1 << n for n in range(most.bit_length())), most})


def _levels(most: int) -> list[int]:
    return sorted({*_powers(most), *(3 << n for n in range(most.bit_length()) if 3 << n < most)})


# --- a run ------------------------------------------------------------------------------------------------------------


class Policy(Protocol):
    def look(self, look: Look, samples_left: int) -> Configuration | None:
        """What should run from now on; None: what runs."""
        ...


class Visit(msgspec.Struct, frozen=True):
    """A configuration that ran from then on."""

    at_s: float
    configuration: Configuration


@dataclass(slots=True)
class Course:
    """What happened. looks_s: CPU time of each look; seconds: of the whole run, from `looked_s` on with what ran
    then."""

    visits: list[Visit] = field(default_factory=list)
    looks_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    looked_s: float = 0.0

    @property
    def final(self) -> Configuration:
        return self.visits[-1].configuration


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on the job costs what `after` costs."""

    at_s: float
    after: Job


def drive(
    job: Job,
    policy: Policy,
    start: Configuration,
    samples: float,
    *,
    looks_s: float = math.inf,
    change: Change | None = None,
    clock: Callable[[], float] = time.thread_time,
) -> Course:
    """Trains so many samples, and looks for `looks_s`, or until what runs is no trial any more (twice as long at most):
    then that goes on to the end."""
    random = np.random.default_rng((job.family.seed, job.seed, 13))
    noise = _noise(job, random)
    course, counted = Course([Visit(0.0, start)]), _Counted(job, random)
    counted.enter(start)
    at_s, trained, present = 0.0, 0.0, start
    lost_s: float | None = None
    while trained < samples and (at_s < looks_s or (at_s - course.visits[-1].at_s < TRIAL_S and at_s < 2 * looks_s)):
        if change is not None and at_s >= change.at_s:
            counted.become(change.after, present)
            change = None
        look = Look(
            at_s=at_s,
            configuration=present,
            is_steady=True,
            samples=int(trained),
            totals=counted.totals(),
            hot_share=counted.hot_share,
            moving_s=lost_s,
        )
        began_s = clock()
        wanted = policy.look(look, max(0, int(samples - trained)))
        course.looks_s.append(clock() - began_s)
        factor, full_s, lost_s = next(noise), LOOK_S, None
        if wanted is not None and wanted != present:
            change_s = float(random.uniform(*CHANGE_S))
            partial = world.PARTIAL_RATE * counted.rate * factor * change_s
            trained += partial
            counted.count(partial)
            full_s -= change_s
            # told with an error of its own: the dip is seen in noise
            lost_s = (1 - world.PARTIAL_RATE) * change_s * float(np.exp(0.3 * random.standard_normal()))
            present = wanted
            counted.enter(present)
            course.visits.append(Visit(at_s + change_s, present))
        done = counted.rate * factor * full_s
        trained += done
        counted.count(done)
        at_s += LOOK_S
    course.looked_s, course.seconds = at_s, at_s + (samples - trained) / counted.rate
    return course


def _noise(job: Job, random: np.random.Generator) -> Iterator[float]:
    """Factors with mean 1, whose logarithms are x' = rho x + sqrt(1 - rho^2) sd e."""
    sd = math.sqrt(math.log1p(job.family.cov**2))
    rho = job.family.rho
    x = sd * float(random.standard_normal())
    while True:
        for shock in (sd * math.sqrt(1 - rho * rho) * random.standard_normal(256)).tolist():
            yield math.exp(x - sd * sd / 2)
            x = rho * x + shock


class _Counted:
    """Totals of a run, each timing off by something that stays while the configuration does."""

    def __init__(self, job: Job, random: np.random.Generator) -> None:
        self._job, self._random = job, random
        self._sums = [0.0] * 7
        self._per_sample = [0.0] * 7
        self.rate, self.hot_share = 0.0, 1.0

    def enter(self, configuration: Configuration) -> None:
        job, workload = self._job, self._job.truth.workload
        speed = job.truth.speed(configuration)
        self.rate = speed.samples_per_s
        noise = np.exp(world.DIRECT_LOG_ERROR * self._random.standard_normal(7)).tolist()
        parts = configuration.workers if workload.mode == "sync" else 1  # batches of one worker in an iteration
        times = (speed.compute_s, speed.reader_s, speed.exchange_s, speed.bytes_moved, speed.worker_cpu_s)
        each = [parts * value * off for value, off in zip(times, noise, strict=False)]
        values = (parts, *each, speed.server_cpu_s * noise[5])
        self._per_sample = [value / workload.batch_size for value in values]
        even = 1 / configuration.servers
        share = (job.truth.skew + (1 - job.truth.skew) * even) * noise[6]
        self.hot_share = min(1.0, max(even, share))

    def become(self, job: Job, configuration: Configuration) -> None:
        """It costs what that job costs from now on."""
        self._job = job
        self.enter(configuration)

    def count(self, samples: float) -> None:
        self._sums = [total + samples * each for total, each in zip(self._sums, self._per_sample, strict=True)]

    def totals(self) -> Totals:
        return Totals(*self._sums)
