"""Runs of a policy in worlds that are known: from which start, for how long, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from benchmarks.tuner.search.arms import BayesianSearch, RandomSearch, Tuned
from benchmarks.tuner.search.course import Change, Course, Policy, drive
from benchmarks.tuner.search.simulated_worlds import SIMULATED
from benchmarks.tuner.search.world import NEAR, Costs, Family, Job, World, draw_family, draw_job
from elastichost.history.features import Estimates, JobRecord
from elastichost.supervisor.autoscale.history_writer import record_of
from elastichost.tuner.facts import COLUMNS, Configuration
from elastichost.tuner.models.base import Prior
from elastichost.tuner.policy.policy import TunerSettings
from elastichost.tuner.warm_start import WarmStart, warm_start

__all__ = ["ARMS", "NEVER", "Drifted", "Options", "Run", "drifts_of", "runs_of"]

NO_PRIORS, NO_TIMERS = "- priors", "- timers"
ARMS = ("elastichost", NO_PRIORS, NO_TIMERS, "dlrover_rm", "optimus", "bayesian", "random")
STARTS = ("default", "random", "warm")
LENGTHS_S = (1800.0, 7200.0, 300.0, 36000.0)
NEVER = 10_000  # tried, of a run that does not end near
DECIDED_S = 0.001  # looks that take longer were decisions


class Options(msgspec.Struct, frozen=True):
    """rival_seeds: of the arms that are not the first. looks_s: for how long a run is looked at, at most."""

    seeds: int = 4
    rival_seeds: int = 2
    looks_s: float = 300.0
    lengths_s: tuple[float, ...] = LENGTHS_S
    worlds: tuple[World, ...] = SIMULATED
    arms: tuple[str, ...] = ARMS


class Run(msgspec.Struct, frozen=True):
    """cov: of the noise. tried: NEVER where it does not end near; until_s: when it was first near. behind: of the last
    configuration; doubt: standard error of a difference between two true speeds. over: less one. lowest: speed on the
    way over the start's. accuracy: for each number of the first plan, smaller over larger of it and the last one's;
    start_speed: of the first plan over that of the best."""

    world: str
    start: str
    arm: str
    seed: int
    length_s: float
    cov: float
    tried: int
    until_s: float
    behind: float
    doubt: float
    over: float
    lowest: float
    violations: int
    trials: int
    changes: int
    accuracy: dict[str, float]
    start_speed: float
    decisions_s: tuple[float, ...]

    @property
    def is_near(self) -> bool:
        return self.behind <= NEAR


# --- one run ----------------------------------------------------------------------------------------------------------


def settings_of(of: World, arm: str = "elastichost", prior: Prior | None = None) -> TunerSettings:
    model = arm if arm in ("dlrover_rm", "optimus") else "elastichost"
    return TunerSettings(of.workload, of.bounds, model=model, prior=None if arm == NO_PRIORS else prior)


def policy_of(arm: str, settings: TunerSettings, seed: int) -> Policy:
    if arm == "random":
        return RandomSearch(settings, seed)
    return BayesianSearch(settings, seed) if arm == "bayesian" else Tuned(settings)


def bad_start(job: Job, seed: int) -> Configuration:
    """A random one of the slower half."""
    slow = job.space[job.speeds < np.median(job.speeds)]
    drawn = slow[np.random.default_rng((seed, 31)).integers(len(slow))]
    return Configuration(*(int(number) for number in drawn))


def samples_of(job: Job, length_s: float) -> float:
    """That the best configuration trains in that time."""
    return length_s * job.speed(job.best)


def tuned_for(job: Job, settings: TunerSettings) -> TunerSettings:
    return msgspec.structs.replace(settings, workload=job.truth.workload)


@lru_cache(maxsize=64)
def history(family: Family, jobs: int, looks_s: float) -> tuple[JobRecord, ...]:
    """Of the jobs that came before, numbered from 1: each was started as its predecessors taught, and tuned."""
    records: list[JobRecord] = []
    for number in range(1, jobs + 1):
        job = draw_job(family, number, settings_of(family.world).min_gain)
        start, prior, _ = first_plan(job, records)
        settings = tuned_for(job, settings_of(family.world, prior=prior))
        policy = Tuned(settings)
        course = drive(job, policy, start, samples_of(job, 1800.0), looks_s=looks_s)
        features = msgspec.structs.replace(family.features, samples=int(samples_of(job, 1800.0)))
        ended = f"2026-01-{number:02}T00:00:00+00:00"
        record = record_of(features, policy.state, settings, course.final, ended, Estimates(), ended_well=True)
        assert record is not None, "something was measured"
        records.append(record)
    return tuple(records)


def first_plan(job: Job, records: Sequence[JobRecord]) -> tuple[Configuration, Prior | None, bool]:
    """Configuration, prior, and whether history knew them."""
    found = warm_start(job.family.features, records, job.family.world.bounds) if records else None
    if isinstance(found, WarmStart):
        return found.configuration, found.prior, True
    return job.family.world.default, None, False


def one_run(of: World, start: str, arm: str, seed: int, options: Options) -> Run:
    length_s = options.lengths_s[seed % len(options.lengths_s)]
    family, prior = draw_family(of, seed), None
    job = draw_job(family, 0, settings_of(of).min_gain)
    if start == "warm":
        first, prior, _ = first_plan(job, history(family, 1 + seed % 5, min(300.0, options.looks_s)))
    else:
        first = of.default if start == "default" else bad_start(job, seed)
    policy = policy_of(arm, tuned_for(job, settings_of(of, arm, prior)), seed)
    course = drive(job, policy, first, samples_of(job, length_s), looks_s=options.looks_s, times=arm != NO_TIMERS)
    return _run(job, course, start, arm, length_s)


def _run(job: Job, course: Course, start: str, arm: str, length_s: float) -> Run:
    found = [visit for visit in course.visits if job.behind(visit.configuration) <= NEAR]
    behind, first, last = job.behind(course.final), course.visits[0].configuration, course.final
    tried, until_s = NEVER, math.inf
    if found and behind <= NEAR:
        until_s = found[0].at_s
        tried = len({visit.configuration for visit in course.visits if visit.at_s <= until_s})
    speeds = [job.speed(visit.configuration) for visit in course.visits]
    new = [
        index
        for index, visit in enumerate(course.visits)
        if visit.configuration not in {one.configuration for one in course.visits[:index]}
    ][1:]
    return Run(
        world=job.family.world.name,
        start=start,
        arm=arm,
        seed=job.family.seed,
        length_s=length_s,
        cov=job.family.cov,
        tried=tried,
        until_s=until_s,
        behind=behind,
        doubt=math.sqrt(2.0) * job.truth.log_error,
        over=course.seconds / length_s - 1.0,
        lowest=min(speeds) / speeds[0],
        violations=sum(speeds[index] < 0.9 * max(speeds[:index]) for index in new),
        trials=len(new),
        changes=len(course.visits) - 1,
        accuracy={name: _nearness(getattr(first, name), getattr(last, name)) for name in COLUMNS},
        start_speed=job.speed(first) / job.speed(job.best),
        decisions_s=tuple(one for one in course.looks_s if one > DECIDED_S),
    )


def _nearness(one: int, other: int) -> float:
    return min(one, other) / max(one, other)


def runs_of(options: Options, told: Callable[[str], None] = lambda text: None) -> Iterator[Run]:
    """All arms on the same jobs, noise and starts; NO_PRIORS is of warm starts only, and of them it is the only one
    beside the tuner's own."""
    for of in options.worlds:
        for start in STARTS:
            for arm in options.arms:
                if arm != options.arms[0] and (start == "warm") != (arm == NO_PRIORS):
                    continue
                seeds = options.seeds if arm == options.arms[0] else options.rival_seeds
                for seed in range(seeds):
                    yield one_run(of, start, arm, seed, options)
        told(of.name)


class Drifted(msgspec.Struct, frozen=True):
    """A job whose costs change in the middle. noticed_s: until the policy said so; None: never. false_alarms: before.
    changes: of the configuration, after; behind: in the end, what is best then."""

    world: str
    what: str
    seed: int
    cov: float
    noticed_s: float | None
    false_alarms: int
    changes: int
    behind: float


# what becomes dearer, as factors of time, computing and work of the PS
DRIFTS = {"all 1.4": Costs(time=1.4), "PS 2.5": Costs(server=2.5), "nothing": Costs()}


def drifts_of(options: Options, worlds: Iterable[World], seeds: int) -> Iterator[Drifted]:
    """Jobs of an hour."""
    half_s = options.looks_s
    for of in worlds:
        for what, costs in DRIFTS.items():
            for seed in range(seeds):
                family, min_gain = draw_family(of, seed), settings_of(of).min_gain
                job, after = draw_job(family, 0, min_gain), draw_job(family, 0, min_gain, costs)
                policy = Tuned(tuned_for(job, settings_of(of)))
                change = Change(half_s, after)
                samples = samples_of(job, 3600.0)
                course = drive(job, policy, of.default, samples, looks_s=2 * half_s, change=change)
                told = [at_s for at_s, one in policy.decisions if one.reason.startswith("the speed has changed")]
                later = [at_s - half_s for at_s in told if at_s >= half_s]
                yield Drifted(
                    world=of.name,
                    what=what,
                    seed=seed,
                    cov=family.cov,
                    noticed_s=later[0] if later else None,
                    false_alarms=sum(at_s < half_s for at_s in told),
                    changes=sum(visit.at_s >= half_s for visit in course.visits),
                    behind=after.behind(course.final),
                )
