"""The jobs of a cluster: families of repeated jobs, several users, bursty arrivals, heavy-tailed sizes. Pure.

A family has costs, tables, and a user with a usual request; its jobs differ slightly from one another. The request is a
random configuration within the user's share of cores, and some users request too little memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.cluster.random_streams import generator
from benchmarks.simulator.cluster.views import GrantLimits
from benchmarks.simulator.queueing.job_speed import ScaledSpeedTable, SpeedOracle, SpeedTable
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, Workload

__all__ = ["DEFAULT_LIMITS", "REFERENCE", "JobMix", "SimulatedJob", "arrivals", "draw_jobs", "spread_out"]

DEFAULT_LIMITS = GrantLimits(Configuration(1, 1, 1, 1), Configuration(32, 16, 16, 16))
REFERENCE = Configuration(8, 4, 2, 2)  # the length of a job in seconds is meant in this configuration
REQUEST_CORES = (1, 2, 4, 8)
MOST_PS_BYTES = 128 * 2**30  # largest request of a user for one PS
Generator = np.random.Generator


class SimulatedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The true properties of one job. cov, rho: coefficient of variation and autocorrelation of the speeds of measured
    windows. seed: of its noise and incidents."""

    job: int
    arrived_s: float
    features: JobFeatures
    truth: SpeedOracle
    samples: int
    memory: MemoryCurve
    request: Configuration
    requested_memory_bytes: int
    share_cores: int
    cov: float
    rho: float
    seed: int


class JobMix(msgspec.Struct, frozen=True):
    """The distribution of jobs. interarrival_s, cv: mean and coefficient of variation of the time between arrivals.
    median_s: median length of a job in the reference configuration."""

    families: int = 24
    users: int = 8
    interarrival_s: float = 120.0
    cv: float = calibration.ARRIVAL_CV
    median_s: float = calibration.DURATION_MEDIAN_S
    share_cores: int = 64
    habit: float = 0.8  # share of a family's jobs with the usual request of the family
    memory_request: tuple[float, float] = calibration.MEMORY_REQUEST_FACTOR


class _Family(msgspec.Struct, frozen=True):
    features: JobFeatures
    table: SpeedTable
    scales: tuple[float, float, float]  # time, compute, server
    table_bytes: float
    growing: float  # share of the tables that is dynamic
    beta: float
    cov: float
    rho: float
    request: Configuration
    memory_factor: float


def draw_jobs(
    seed: int, count: int, mix: JobMix, tables: Mapping[str, SpeedTable], limits: GrantLimits
) -> tuple[SimulatedJob, ...]:
    """Draws `count` jobs in order of arrival. The same arguments give the same jobs; a job does not depend on
    `count`."""
    families = [
        _draw_family(generator(seed, "job", -index - 1 + 2**31), index, mix, tables, limits)
        for index in range(mix.families)
    ]
    at_s = arrivals(seed, count, mix.interarrival_s, mix.cv)
    popularity = 1.0 / np.arange(1, mix.families + 1)
    popularity /= popularity.sum()
    jobs = []
    for job in range(count):
        random = generator(seed, "job", job)
        family = families[int(random.choice(mix.families, p=popularity))]
        jobs.append(_draw_job(random, seed, job, float(at_s[job]), family, mix, limits))
    return tuple(jobs)


def arrivals(seed: int, count: int, interarrival_s: float, cv: float) -> Sequence[float]:
    """Times of arrival in seconds, ascending from 0.0. The times between them are hyperexponential with balanced means:
    with probability p = (1 + sqrt((cv^2 - 1) / (cv^2 + 1))) / 2 the rate is 2 p / mean, otherwise 2 (1 - p) / mean.
    cv = 1 is a Poisson process. Raises ValueError for a cv below 1."""
    if cv < 1:
        raise ValueError(f"cv={cv} must be at least 1")
    random = generator(seed, "arrivals", 0)
    share = (1 + math.sqrt((cv**2 - 1) / (cv**2 + 1))) / 2
    draws = random.random((count, 2))
    rates = np.where(draws[:, 0] < share, 2 * share, 2 * (1 - share)) / interarrival_s
    gaps = -np.log1p(-draws[:, 1]) / rates
    gaps[:1] = 0.0
    found: list[float] = np.cumsum(gaps).tolist()
    return found


def spread_out(jobs: Sequence[SimulatedJob], factor: float) -> tuple[SimulatedJob, ...]:
    """The same jobs with all times between arrivals multiplied by `factor`."""
    return tuple(msgspec.structs.replace(job, arrived_s=job.arrived_s * factor) for job in jobs)


def _log_uniform(random: Generator, low: float, high: float) -> float:
    return float(math.exp(random.uniform(math.log(low), math.log(high))))


def _draw_family(
    random: Generator, index: int, mix: JobMix, tables: Mapping[str, SpeedTable], limits: GrantLimits
) -> _Family:
    names = sorted(tables)
    table = tables[names[index % len(names)]]
    compute, server = _log_uniform(random, 0.6, 1.8), _log_uniform(random, 0.6, 1.8)
    low, high = _cov_class(random.random())
    table_bytes = _log_uniform(random, *calibration.TABLE_BYTES)
    growing = random.uniform(0.2, 0.8)
    return _Family(
        features=_features(random, index, mix, table.workload, compute, server, table_bytes * (1 - growing)),
        table=table,
        scales=(_log_uniform(random, 0.5, 2.0), compute, server),
        table_bytes=table_bytes,
        growing=growing,
        beta=random.uniform(*calibration.HEAPS_BETA),
        cov=_log_uniform(random, low, high),
        rho=random.uniform(*calibration.NOISE_RHO),
        request=_draw_request(random, mix.share_cores, limits),
        memory_factor=_log_uniform(random, *mix.memory_request),
    )


def _cov_class(uniform: float) -> tuple[float, float]:
    for share, low, high in calibration.COV_CLASSES[:-1]:
        if uniform < share:
            return low, high
        uniform -= share
    return calibration.COV_CLASSES[-1][1:]


def _features(
    random: Generator, index: int, mix: JobMix, workload: Workload, compute: float, server: float, fixed_bytes: float
) -> JobFeatures:
    """The features of a family: more computing means a larger dense part, more work at the PS means wider rows."""
    tables, dim = int(random.integers(8, 60)), 4 * round(4 * server)
    return JobFeatures(
        family=f"models_{index:02}:build",
        user=f"user{index % mix.users}",
        tables=tables,
        dynamic_tables=max(1, tables // 3),
        rows=int(fixed_bytes / (4 * dim + 4)),
        largest_rows=int(fixed_bytes / (4 * dim + 4) / 3),
        mean_dim=float(dim),
        largest_dim=dim,
        ids_per_sample=workload.ids_per_sample,
        dense_bytes=int(workload.dense_bytes * compute),
        batch_size=workload.batch_size,
        mode=workload.mode,
        access=workload.access,
    )


def _draw_request(random: Generator, share_cores: int, limits: GrantLimits) -> Configuration:
    """A log-uniform request within the user's share of cores."""
    while True:
        drawn = Configuration(
            workers=int(_log_uniform(random, 1, limits.most.workers + 1)),
            servers=int(_log_uniform(random, 1, limits.most.servers + 1)),
            worker_cores=int(random.choice(REQUEST_CORES)),
            server_cores=int(random.choice(REQUEST_CORES)),
        )
        if calibration.LEAST_REQUEST * share_cores <= drawn.cores <= share_cores:
            return drawn


def _draw_job(
    random: Generator, seed: int, job: int, arrived_s: float, family: _Family, mix: JobMix, limits: GrantLimits
) -> SimulatedJob:
    jitter = np.exp(calibration.FAMILY_JITTER_LOG_SD * random.standard_normal(5)).tolist()
    time, compute, server = family.scales
    truth = ScaledSpeedTable(family.table, time * jitter[0], compute * jitter[1], server * jitter[2])
    lasts_s = mix.median_s * math.exp(calibration.DURATION_LOG_SD * random.standard_normal())
    lasts_s = min(max(lasts_s, calibration.DURATION_RANGE_S[0]), calibration.DURATION_RANGE_S[1])
    samples = max(1, int(lasts_s * truth.speed(REFERENCE).samples_per_s))
    table_bytes = family.table_bytes * jitter[3]
    memory = MemoryCurve(
        fixed_bytes=table_bytes * (1 - family.growing),
        growth_bytes=table_bytes * family.growing * jitter[4],
        beta=family.beta,
        samples=float(samples),
        worker_bytes=float(calibration.WORKER_BYTES),
        server_bytes=float(calibration.SERVER_BYTES),
    )
    request, factor = family.request, family.memory_factor
    if random.random() >= mix.habit:
        request, factor = _draw_request(random, mix.share_cores, limits), _log_uniform(random, *mix.memory_request)
    most = request.servers * MOST_PS_BYTES + request.workers * calibration.WORKER_BYTES
    return SimulatedJob(
        job=job,
        arrived_s=arrived_s,
        features=msgspec.structs.replace(family.features, name=f"job-{job}", samples=samples),
        truth=truth,
        samples=samples,
        memory=memory,
        request=request,
        requested_memory_bytes=int(min(factor * memory.used_bytes(float(samples), request), most)),
        share_cores=mix.share_cores,
        cov=family.cov,
        rho=family.rho,
        seed=seed,
    )
