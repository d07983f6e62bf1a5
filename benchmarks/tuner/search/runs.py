"""Runs policies in known worlds, from different starts and for different lengths, and records the results."""

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
NEVER = 10_000  # value of `tried` for a run that does not end near
DECIDED_S = 0.001  # a look that takes longer counts as a decision


class Options(msgspec.Struct, frozen=True):
    """Options. rival_seeds: number of seeds of all arms but the first. looks_s: longest time with looks."""

    seeds: int = 4
    rival_seeds: int = 2
    looks_s: float = 300.0
    lengths_s: tuple[float, ...] = LENGTHS_S
    worlds: tuple[World, ...] = SIMULATED
    arms: tuple[str, ...] = ARMS


class Run(msgspec.Struct, frozen=True):
    """One run. cov: of the noise. tried: NEVER if it does not end near. until_s: when it was first near. behind: of the
    last configuration. doubt: standard error of a difference between two true speeds. over: relative extra time.
    lowest: lowest speed on the way / speed of the start. accuracy: for each number of the first and the last plan,
    smaller / larger. start_speed: speed of the first plan / speed of the best."""

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
    """A random configuration of the slower half."""
    slow = job.space[job.speeds < np.median(job.speeds)]
    drawn = slow[np.random.default_rng((seed, 31)).integers(len(slow))]
    return Configuration(*(int(number) for number in drawn))


def samples_of(job: Job, length_s: float) -> float:
    """The number of samples that the best configuration trains in `length_s` seconds."""
    return length_s * job.speed(job.best)


def tuned_for(job: Job, settings: TunerSettings) -> TunerSettings:
    return msgspec.structs.replace(settings, workload=job.truth.workload)


@lru_cache(maxsize=64)
def history(family: Family, jobs: int, looks_s: float) -> tuple[JobRecord, ...]:
    """The records of earlier jobs, numbered from 1. Each had the history of its predecessors."""
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
        assert record is not None, "the run must have measured a configuration"
        records.append(record)
    return tuple(records)


def first_plan(job: Job, records: Sequence[JobRecord]) -> tuple[Configuration, Prior | None, bool]:
    """The first configuration, the prior, and whether both come from the history."""
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
    """Runs all arms on the same jobs, noise and starts. Warm starts have two arms: the tuner's and NO_PRIORS, which has
    no other starts."""
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
    """A job with costs that change in the middle. noticed_s: time until the policy detects it, None for never.
    false_alarms: detections before the change. changes: configurations changed after it. behind: of the last
    configuration, relative to the best one after the change."""

    world: str
    what: str
    seed: int
    cov: float
    noticed_s: float | None
    false_alarms: int
    changes: int
    behind: float


# changes of costs: factors on all times and on the work of the PS
DRIFTS = {"all 1.4": Costs(time=1.4), "PS 2.5": Costs(server=2.5), "nothing": Costs()}


def drifts_of(options: Options, worlds: Iterable[World], seeds: int) -> Iterator[Drifted]:
    """Runs jobs of one hour with changing costs."""
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
                told = [at_s for at_s, one in policy.decisions if one.has_drifted]
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
