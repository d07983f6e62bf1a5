"""Derives the first plan of a job and the priors of its models from similar finished jobs. Pure.

The method is the pre-scaling of DLRover-RM (PVLDB 17(12), 2024): it takes the most similar jobs of the history and
averages their plans with exponential smoothing. The distance between jobs, the averaging by ratios, and the priors of
model parameters are additions of this project.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence

import msgspec

from elastichost.history.features import Estimates, JobFeatures, JobMetric, JobRecord, PlanSize
from elastichost.tuner.facts import Configuration
from elastichost.tuner.models.base import Prior
from elastichost.tuner.policy.candidates import Bounds, nearest_candidate

__all__ = [
    "METRIC",
    "NEAR",
    "ColdStart",
    "SimilarJob",
    "WarmStart",
    "distance",
    "nearest",
    "neighbours",
    "none_near",
    "warm_start",
]

NEAR = 1.2  # jobs at a larger distance are not used
SMOOTHING = 0.5  # weight of the most similar job; each further job has half the weight of the one before
BAND = 0.1  # jobs whose distances lie in the same band of this width count as equally similar: the newest comes first
REACH = 0.5  # distance at which the weight of a job has fallen to 0.6: exp(-(d / REACH)^2 / 2)
FAILED = 0.3  # added to the distance of a job that failed
TRIED = math.log(1.5)  # the nearest plan is used instead of the mean of plans if it is within this log distance
FILLED = 0.8  # a plan filled its host if its workers used at least this share of the cores of the host
# standard deviations of the log of a parameter: between two runs of one job, and between similar jobs per unit distance
RUN_TO_RUN, WIDENING = 0.05, 0.5

# Distance for each factor of 2 between two sizes. A size of 0 is unknown and counts as a factor of 1.4.
SIZES = {
    "tables": 0.5,
    "dynamic_tables": 0.1,
    "rows": 0.15,
    "mean_dim": 0.5,
    "ids_per_sample": 0.5,
    "dense_bytes": 0.3,
    "batch_size": 0.4,
    "samples": 0.05,
    "host_cores": 0.5,
    "gpus": 0.5,
}
UNKNOWN = 0.5  # of a factor of 2
# Distance for each property that differs.
WORDS = {"family": 1.0, "shape": 0.5, "mode": 0.7, "access": 1.0, "user": 0.15, "name": 0.1}
# Distance where one job has a nonzero number and the other job has 0: they are different kinds of jobs.
KINDS = {"dynamic_tables": 0.3, "host_cores": 0.7, "gpus": 2.0}
METRIC = JobMetric(
    words=WORDS,
    unset_words=("shape",),  # older records have no shape
    sizes=SIZES,
    kinds=KINDS,
    unknown=UNKNOWN,
    failed=FAILED,
    near=NEAR,
    band=BAND,
)


class SimilarJob(msgspec.Struct, frozen=True):
    """A job of the history and its distance to the new job; 0: equal in all compared properties."""

    record: JobRecord
    distance: float


class WarmStart(msgspec.Struct, frozen=True):
    """The first configuration and the priors. prior: of the parameters of the speed model. memory: of the parameters of
    the memory curve. Both may be empty."""

    configuration: Configuration
    prior: Prior
    memory: Estimates
    similar: tuple[SimilarJob, ...]
    reason: str


class ColdStart(msgspec.Struct, frozen=True):
    """No similar job has a measured speed. memory: estimates of the memory curve from similar jobs, if any."""

    reason: str
    memory: Estimates = Estimates()


def distance(one: JobFeatures, other: JobFeatures) -> float:
    """Returns the distance of two jobs: the root of the sum of squared differences. Differences are weighted log ratios
    of sizes, and penalties for properties that differ. Symmetric; 0 for equal jobs."""
    return METRIC.distance(one, other)


def nearest(features: JobFeatures, records: Iterable[JobRecord], k: int = 5) -> tuple[SimilarJob, ...]:
    """Returns up to k jobs within distance NEAR, the most similar first; jobs within the same BAND are ordered newest
    first. The order of `records` does not matter."""
    found = []
    for record in records:
        away = distance(features, record.features) + FAILED * (not record.ended_well)
        if METRIC.is_near(away):
            found.append(SimilarJob(record, away))
    found.sort(key=lambda one: (one.record.written_utc, msgspec.json.encode(one.record)), reverse=True)
    found.sort(key=lambda one: METRIC.band_of(one.distance))
    return tuple(found[:k])


def neighbours(features: JobFeatures, records: Iterable[JobRecord], k: int = 5) -> tuple[JobRecord, ...]:
    """Returns the records that `warm_start` uses, the nearest first: up to k records with a measured speed and up to k
    records with estimates of memory."""
    near = [one.record for one in nearest(features, records, sys.maxsize)]
    plans = [one for one in near if one.is_measured][:k]
    memories = [one for one in near if one.memory.mean][:k]
    return tuple(one for one in near if any(one is other for other in (*plans, *memories)))


def none_near(records: int, closest: tuple[float, str] | None) -> ColdStart:
    """The cold start for a history without a similar job. records: number of jobs in the history. closest: distance and
    name of the most similar job; None: the history is empty."""
    if closest is None:
        return ColdStart("the history is empty")
    return ColdStart(
        f"no similar job among {_jobs(records)}: the most similar, {closest[1]}, has distance {closest[0]:.3f} "
        f"(at most {NEAR:g} is allowed)"
    )


def warm_start(
    features: JobFeatures, records: Sequence[JobRecord], bounds: Bounds, *, model: str = "elastichost", k: int = 5
) -> WarmStart | ColdStart:
    """Returns the first configuration and the priors of a job.

    The plan and the prior of the speed model come from the k most similar jobs with a measured speed, the memory
    estimates from the k most similar jobs with such estimates.

    Plan: the mean of the logs of the best plans of these jobs, with weights
    SMOOTHING * (1 - SMOOTHING)^rank * exp(-(distance / REACH)^2 / 2). If one of these plans lies within TRIED of the
    mean, it replaces the mean, because it was measured and the mean was not. The result is the nearest candidate within
    `bounds`. Priors: `_merged`, from the jobs that were tuned with the same `model`. Raises ValueError if no
    configuration fits the bounds.
    """
    similar = nearest(features, [one for one in records if one.is_measured], k)
    memory = _merged(
        nearest(features, [one for one in records if one.memory.mean], k),
        lambda record: record.memory,
        _spread_of_memory,
    )
    if not similar and nearest(features, records, 1):
        known = "; the growth of their memory is known" if memory.mean else ""
        return ColdStart(f"no similar job has a measured speed{known}", memory)
    if not similar:
        away = [(distance(features, one.features), one.features.name or one.features.family) for one in records]
        return none_near(len(records), min(away, default=None))
    configuration = nearest_candidate(bounds, _first_plan(features, similar))
    of_model = [one for one in similar if one.record.model == model]
    prior = _merged(of_model, lambda record: record.parameters, _spread_of_speed)
    reason = _reason(similar, configuration, len(prior.mean))
    return WarmStart(configuration, Prior(prior.mean, prior.sd), memory, similar, reason)


# --- the plan ---------------------------------------------------------------------------------------------------------


def _first_plan(features: JobFeatures, similar: Sequence[SimilarJob]) -> tuple[float, ...]:
    """The weighted mean plan or the measured plan near it: four positive numbers, in the order of PlanSize."""
    plans = [_logs_for(features, one.record) for one in similar]
    weights = [
        SMOOTHING * (1 - SMOOTHING) ** rank * math.exp(-((one.distance / REACH) ** 2) / 2)
        for rank, one in enumerate(similar)
    ]
    total = math.fsum(weights)
    mean = [math.fsum(w * plan[at] for w, plan in zip(weights, plans, strict=True)) / total for at in range(4)]
    closest = min(plans, key=lambda plan: math.dist(plan, mean))
    return tuple(math.exp(log) for log in (closest if math.dist(closest, mean) <= TRIED else mean))


def _logs_for(features: JobFeatures, record: JobRecord) -> list[float]:
    """Logs of the best plan of a record. If that plan filled its host, its workers are scaled to the cores of this
    host."""
    best, cores = record.best, record.features.host_cores
    workers = float(best.workers)
    if features.host_cores and cores and best.workers * best.worker_cores >= FILLED * cores:
        workers = max(1.0, workers * features.host_cores / cores)
    return [math.log(max(number, 1)) for number in (workers, best.servers, best.worker_cores, best.server_cores)]


# --- the priors -------------------------------------------------------------------------------------------------------


def _merged(
    similar: Sequence[SimilarJob], estimates_of: Callable[[JobRecord], Estimates], differ_by: Callable[[float], float]
) -> Estimates:
    """Pools the estimates of similar jobs, each weighted by its precision. All means and standard deviations are of
    logs.

        v[i] = sd[i]^2 + RUN_TO_RUN^2 + u(d[i])                   variance of job i's estimate, seen from this job
        mean = sum(mean[i] / v[i]) / sum(1 / v[i])
        sd^2 = 1 / sum(1 / v[i]) + spread^2 + RUN_TO_RUN^2 + u(d)

    mean[i], sd[i]: estimate of job i. d[i]: distance of job i. u(d) = differ_by(d): variance of the difference between
    two jobs at distance d. spread^2: weighted variance of the means. d: weighted mean distance. The last two terms do
    not shrink with the number of jobs, because jobs really differ. `math.fsum` makes the sums independent of the order.
    """
    said: dict[str, list[tuple[float, float, float]]] = {}  # mean, 1 / v, distance
    for one in similar:
        estimates = estimates_of(one.record)
        for name, mean in estimates.mean.items():
            sd = estimates.sd.get(name, math.nan)
            if math.isfinite(mean) and math.isfinite(sd) and sd >= 0:
                variance = sd**2 + RUN_TO_RUN**2 + differ_by(one.distance)
                said.setdefault(name, []).append((mean, 1 / variance, one.distance))
    merged = {name: _pooled(said[name], differ_by) for name in sorted(said)}
    return Estimates({name: both[0] for name, both in merged.items()}, {name: both[1] for name, both in merged.items()})


def _pooled(said: Sequence[tuple[float, float, float]], differ_by: Callable[[float], float]) -> tuple[float, float]:
    precision = math.fsum(weight for _, weight, _ in said)
    mean = math.fsum(weight * value for value, weight, _ in said) / precision
    spread = math.fsum(weight * (value - mean) ** 2 for value, weight, _ in said) / precision
    away = math.fsum(weight * far for _, weight, far in said) / precision
    return mean, math.sqrt(1 / precision + spread + RUN_TO_RUN**2 + differ_by(away))


def _spread_of_memory(away: float) -> float:
    """u(d) of `_merged` for the parameters of the memory curve."""
    return (WIDENING * away) ** 2


def _spread_of_speed(away: float) -> float:
    """u(d) of `_merged` for the parameters of the speed model. The standard deviation is 0.1 at distance 0.2, 0.4 at
    REACH, and 1.4 at 0.8, where the model's default guesses are as good. Measured: parameters of recorded jobs at
    distance 1.2 differ by 1 to 2 (logs)."""
    return (WIDENING * away) ** 2 * math.exp((away / REACH) ** 2)


# --- sentences --------------------------------------------------------------------------------------------------------


def _reason(similar: Sequence[SimilarJob], configuration: Configuration, parameters: int) -> str:
    closest = similar[0].record
    when = closest.written_utc.partition("T")[0] or "an unknown day"
    name = closest.features.name or closest.features.family
    found = f"distance {similar[0].distance:.1f}" if similar[0].distance >= BAND else "the same job"
    kind = "1 similar job" if len(similar) == 1 else f"{len(similar)} similar jobs"
    best = _configuration(closest.best)
    many = "1 parameter of the model starts" if parameters == 1 else f"{parameters} parameters of the model start"
    known = f"; {many} from the history" if parameters else ""
    return (
        f"warm start with {configuration}: {kind} in the history; the nearest is {name} of {when} ({found}), "
        f"its best plan was {best} with {closest.samples_per_s:,.0f} samples/s{known}"
    )


def _configuration(plan: PlanSize) -> Configuration:
    return Configuration(plan.workers, plan.servers, plan.worker_cores, plan.server_cores)


def _jobs(number: int) -> str:
    return f"{number:,} job{'s' * (number != 1)} of the history"
