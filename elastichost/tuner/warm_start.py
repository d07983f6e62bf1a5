"""What a job begins with, from jobs like it that are over: its first plan, and what its models believe before anything
was measured. Pure.

As DLRover-RM does it (PVLDB 17(12), 2024, pre-scaling): the most similar jobs of the history, smoothed exponentially.
How similarity is measured, how plans are averaged and what becomes of the models' parameters is ours.
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

NEAR = 1.2  # jobs farther away teach nothing
SMOOTHING = 0.5  # weight of the first of those compared; each further one has half as much
BAND = 0.1  # of distance, within which the newer job comes first
REACH = 0.5  # distance at which a job's weight is down to 0.6: exp(-(d / REACH)^2 / 2)
FAILED = 0.3  # added to the distance of a job that did not end well
TRIED = math.log(1.5)  # a mean of plans gives way to one of them that is no farther than this, by ratios
FILLED = 0.8  # share of the host's cores that the workers had, from which a plan filled its host
# log standard deviations of a parameter: between two runs of one job, and between near jobs for each 1 of distance
RUN_TO_RUN, WIDENING = 0.05, 0.5

# Distance for each factor of 2 between two sizes; 0 is unknown, and as far as a factor of 1.4.
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
# Distance for each that differs.
WORDS = {"family": 1.0, "shape": 0.5, "mode": 0.7, "access": 1.0, "user": 0.15, "name": 0.1}
# Distance where one has some and the other none: it is another kind of job.
KINDS = {"dynamic_tables": 0.3, "host_cores": 0.7, "gpus": 2.0}
METRIC = JobMetric(
    words=WORDS,
    unset_words=("shape",),  # records of before there was a shape do not know theirs
    sizes=SIZES,
    kinds=KINDS,
    unknown=UNKNOWN,
    failed=FAILED,
    near=NEAR,
    band=BAND,
)


class SimilarJob(msgspec.Struct, frozen=True):
    """A job of the history and how far it is from the one at hand; 0: in nothing that counts."""

    record: JobRecord
    distance: float


class WarmStart(msgspec.Struct, frozen=True):
    """What to begin with. prior: of the model's parameters; memory: of the memory curve's; either may be empty."""

    configuration: Configuration
    prior: Prior
    memory: Estimates
    similar: tuple[SimilarJob, ...]
    reason: str


class ColdStart(msgspec.Struct, frozen=True):
    """No speed is known that is near enough; memory: of the memory curve's parameters, where that is known."""

    reason: str
    memory: Estimates = Estimates()


def distance(one: JobFeatures, other: JobFeatures) -> float:
    """Root of the sum of squares of the differences: weighted log ratios of sizes, and penalties for what is not the
    same. Symmetric; 0 for equal jobs."""
    return METRIC.distance(one, other)


def nearest(features: JobFeatures, records: Iterable[JobRecord], k: int = 5) -> tuple[SimilarJob, ...]:
    """The k most similar jobs that are near enough, the most similar first, of those about as similar the newest. Their
    order in `records` does not matter."""
    found = []
    for record in records:
        away = distance(features, record.features) + FAILED * (not record.ended_well)
        if METRIC.is_near(away):
            found.append(SimilarJob(record, away))
    found.sort(key=lambda one: (one.record.ended_utc, msgspec.json.encode(one.record)), reverse=True)
    found.sort(key=lambda one: METRIC.band_of(one.distance))
    return tuple(found[:k])


def neighbours(features: JobFeatures, records: Iterable[JobRecord], k: int = 5) -> tuple[JobRecord, ...]:
    """Those that `warm_start` looks at, the nearest first: k whose speed was measured, and k that teach of memory."""
    near = [one.record for one in nearest(features, records, sys.maxsize)]
    plans = [one for one in near if one.is_measured][:k]
    memories = [one for one in near if one.memory.mean][:k]
    return tuple(one for one in near if any(one is other for other in (*plans, *memories)))


def none_near(records: int, closest: tuple[float, str] | None) -> ColdStart:
    """Of so many jobs; closest: the nearest one's distance and name."""
    if closest is None:
        return ColdStart("the history is empty")
    return ColdStart(
        f"none of {_jobs(records)} is similar enough to learn from: the most similar, {closest[1]}, has distance "
        f"{closest[0]:.1f} (at most {NEAR:g} counts)"
    )


def warm_start(
    features: JobFeatures, records: Sequence[JobRecord], bounds: Bounds, *, model: str = "elastichost", k: int = 5
) -> WarmStart | ColdStart:
    """The plan and the priors of a job, from the k jobs of the history that are most like it, of the memory curve
    from the k most similar ones that teach of it.

    Plan: mean of their best plans by ratios (of logs), with weights SMOOTHING * (1 - SMOOTHING)^rank, less the farther
    away a job is. If one of those plans is close to the mean it is taken, because it was measured and a mean was not;
    then the candidate within `bounds` that is nearest. Priors: `_merged`, of the parameters that `model` has. Raises
    ValueError when nothing fits within the bounds.
    """
    similar = nearest(features, [one for one in records if one.is_measured], k)
    memory = _merged(
        nearest(features, [one for one in records if one.memory.mean], k),
        lambda record: record.memory,
        _spread_of_memory,
    )
    if not similar and nearest(features, records, 1):
        known = "; how its memory grew is known" if memory.mean else ""
        return ColdStart(f"of no similar job a speed was measured{known}", memory)
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
    """Four positive numbers, as in PlanSize."""
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
    """Logs of a record's best plan. One that filled its host is made to fill this one."""
    best, cores = record.best, record.features.host_cores
    workers = float(best.workers)
    if features.host_cores and cores and best.workers * best.worker_cores >= FILLED * cores:
        workers = max(1.0, workers * features.host_cores / cores)
    return [math.log(max(number, 1)) for number in (workers, best.servers, best.worker_cores, best.server_cores)]


# --- the priors -------------------------------------------------------------------------------------------------------


def _merged(
    similar: Sequence[SimilarJob], estimates_of: Callable[[JobRecord], Estimates], differ_by: Callable[[float], float]
) -> Estimates:
    """Means and standard deviations of the jobs' estimates, each weighted by its precision; logs throughout.

        v[i] = sd[i]^2 + RUN_TO_RUN^2 + u(d[i])                   what job i says of this one
        mean = sum(mean[i] / v[i]) / sum(1 / v[i])
        sd^2 = 1 / sum(1 / v[i]) + spread^2 + RUN_TO_RUN^2 + u(d)

    u(d) = differ_by(d) is the variance of what jobs differ by that are d apart, spread^2 the weighted variance of the
    means, d the weighted mean distance: what jobs differ by stays, however many of them there are. Sums do not depend
    on the order.
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
    """u of `_merged`, for what the growth of memory depends on."""
    return (WIDENING * away) ** 2


def _spread_of_speed(away: float) -> float:
    """The same for parameters of the speed: standard deviations of 0.1 at 0.2, 0.4 at REACH, 1.4 at 0.8, where the
    model's own guesses are as good. What was determined of recorded jobs 1.2 apart differs by 1 to 2."""
    return (WIDENING * away) ** 2 * math.exp((away / REACH) ** 2)


# --- in words ---------------------------------------------------------------------------------------------------------


def _reason(similar: Sequence[SimilarJob], configuration: Configuration, parameters: int) -> str:
    closest = similar[0].record
    when = closest.ended_utc.partition("T")[0] or "an unknown day"
    name = closest.features.name or closest.features.family
    found = f"{similar[0].distance:.1f} away" if similar[0].distance >= BAND else "which is the same in all that counts"
    kind = "a similar job" if len(similar) == 1 else f"{len(similar)} similar jobs"
    best = _configuration(closest.best)
    many = "1 parameter of the model begins" if parameters == 1 else f"{parameters} parameters of the model begin"
    known = f"; {many} with what was learnt" if parameters else ""
    return (
        f"warm start with {configuration}: {kind}, nearest {name} of {when}, {found}, "
        f"whose best plan was {best} with {closest.samples_per_s:,.0f} samples/s{known}"
    )


def _configuration(plan: PlanSize) -> Configuration:
    return Configuration(plan.workers, plan.servers, plan.worker_cores, plan.server_cores)


def _jobs(number: int) -> str:
    return f"{number:,} job{'s' * (number != 1)} of the history"
