"""Whether the tuner leaves a good run alone and improves a bad one, in worlds with known speeds.

    python -m benchmarks.tuner.stay [--seeds 6] [--first-seed 0] [--json]

The production policy gets looks at recorded two-core jobs (`stay_worlds`) and at simulated hosts. Each job starts with
its best plan and with a bad plan, each with three histories: empty, of similar jobs, and of two short jobs of other
kinds that count as neighbours (distance 0.8). Jobs take 100 s to half an hour. All speeds are true speeds, so that
noise matters only if it misleads the policy. "slowest 5 s" is the lowest mean speed over 5 s, including the cost of
plan changes, divided by the speed of the first plan. "until" is the time until a plan within 5 % of the best runs, for
runs that end with one. "over" is the time of the job divided by its time with the best plan from the start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec
import numpy as np

from benchmarks.harness.output import print_table, write_json
from benchmarks.simulator.cluster import calibration
from benchmarks.tuner.search.arms import Tuned
from benchmarks.tuner.search.course import CHANGE_S, Course, drive
from benchmarks.tuner.search.runs import bad_start, first_plan, history, samples_of, settings_of, tuned_for
from benchmarks.tuner.search.simulated_worlds import Simulated
from benchmarks.tuner.search.world import NEAR, Job, World, draw_family, draw_job
from benchmarks.tuner.stay_worlds import still_worlds
from elastichost.history.features import Estimates, JobRecord
from elastichost.supervisor.autoscale.history_writer import record_of
from elastichost.tuner.facts import Configuration, as_array
from elastichost.tuner.models.base import Prior
from elastichost.tuner.policy.candidates import contains
from elastichost.tuner.warm_start import WarmStart, warm_start

__all__ = ["HISTORIES", "STARTS", "Figures", "Stay", "Summary", "main", "stays_of", "summary_of"]

STARTS, HISTORIES = ("best", "bad"), ("empty", "like", "unlike")
LENGTHS_S = (100.0, 300.0, 1800.0)
LOOKED_S = 300.0
SLOW_S, FLOOR, MOST_CHANGES = 5.0, 0.85, 2
NEVER_S = 1e9  # for a run that is never near the best, so that quantiles can be taken
BAD = (Configuration(1, 4), Configuration(3, 4), Configuration(4, 4), Configuration(1, 1), Configuration(1, 1, 2))
HOSTS = (
    Simulated("direct_small_host", host_cores=2),
    Simulated("direct_small_host", host_cores=16),
    Simulated("served_small_host", host_cores=16),
)


class Stay(msgspec.Struct, frozen=True):
    """One run. slowest: lowest speed over 5 s / speed of the first plan. until_s: time until it is within 5 % of the
    best; None if it does not end there. final: last speed / best speed."""

    world: str
    start: str
    history: str
    seed: int
    length_s: float
    changes: int
    slowest: float
    until_s: float | None
    final: float
    over: float
    tried: tuple[str, ...]

    @property
    def is_calm(self) -> bool:
        return self.changes <= MOST_CHANGES and self.slowest >= FLOOR


# --- one run ----------------------------------------------------------------------------------------------------------


def stay_of(of: World, start: str, past: str, seed: int) -> Stay:
    family = draw_family(of, seed)
    job = draw_job(family, 0, settings_of(of).min_gain)
    length_s = LENGTHS_S[seed % len(LENGTHS_S)]
    prior = _prior(job, past, seed)
    first = job.best if start == "best" else _bad(job, seed)
    policy = Tuned(tuned_for(job, settings_of(of, prior=prior)))
    course = drive(job, policy, first, samples_of(job, length_s), looks_s=LOOKED_S)
    plain = f"{of.name}{' host' if isinstance(of, Simulated) else ''}"
    until_s = next((visit.at_s for visit in course.visits if job.behind(visit.configuration) <= NEAR), None)
    return Stay(
        world=plain,
        start=start,
        history=past,
        seed=seed,
        length_s=length_s,
        changes=len(course.visits) - 1,
        slowest=_slowest(job, course),
        until_s=until_s if job.behind(course.final) <= NEAR else None,
        final=job.speed(course.final) / job.speed(job.best),
        over=course.seconds / length_s - 1.0,
        tried=tuple(str(visit.configuration) for visit in course.visits),
    )


def _bad(job: Job, seed: int) -> Configuration:
    """A plan of BAD that is at least a tenth slower than the best, if there is one."""
    near = [one for one in BAD if contains(job.family.world.bounds, as_array([one])).all()]
    slow = [one for one in near if job.behind(one) > 2 * NEAR]
    small = job.family.world.bounds.most.workers <= 4
    return slow[seed % len(slow)] if slow and small else bad_start(job, seed)


def _prior(job: Job, past: str, seed: int) -> Prior | None:
    if past == "empty":
        return None
    if past == "like":
        return first_plan(job, history(job.family, 2, 60.0))[1]
    found = warm_start(job.family.features, _strangers(job, seed), job.family.world.bounds)
    return found.prior if isinstance(found, WarmStart) else None


def _strangers(job: Job, seed: int) -> tuple[JobRecord, ...]:
    """The records of two jobs of other worlds that count as neighbours: a third of the batch, half the ids."""
    mine = job.family
    every: tuple[World, ...] = (*still_worlds()[1:], *HOSTS)
    others = [one for one in every if _is_stranger(one, mine.world)]
    picks = np.random.default_rng((seed, 41)).permutation(len(others))[:2]
    features = msgspec.structs.replace(mine.features, batch_size=max(1, mine.features.batch_size // 3))
    if features.ids_per_sample > 0:
        features = msgspec.structs.replace(features, ids_per_sample=features.ids_per_sample / 2)
    return tuple(
        msgspec.structs.replace(_short(others[pick], seed), features=msgspec.structs.replace(features, samples=number))
        for number, pick in enumerate(picks.tolist(), start=1)
    )


def _is_stranger(one: World, mine: World) -> bool:
    both = one.workload, mine.workload
    return one.name != mine.name and len({work.mode for work in both}) == len({bool(w.host_cores) for w in both}) == 1


@lru_cache(maxsize=256)
def _short(of: World, seed: int) -> JobRecord:
    """The record of a run of half a minute from the default plan."""
    job = draw_job(draw_family(of, seed), 9, settings_of(of).min_gain)
    policy = Tuned(tuned_for(job, settings_of(of)))
    course = drive(job, policy, of.default, samples_of(job, 30.0), looks_s=30.0)
    ended = f"2026-01-{1 + seed % 28:02}T00:00:00+00:00"
    record = record_of(
        job.family.features, policy.state, policy.settings, course.final, ended, Estimates(), ended_well=True
    )
    assert record is not None, "the run must have measured a configuration"
    return record


def _slowest(job: Job, course: Course) -> float:
    """The lowest mean speed over SLOW_S in steps of 0.1 s. During a plan change, training has a part of its speed."""
    step_s = 0.1
    ends_s = max(SLOW_S, min(course.seconds, course.looked_s + SLOW_S))
    times = np.arange(0.0, ends_s, step_s)
    speeds = np.empty(len(times))
    for visit in course.visits:
        speeds[times >= visit.at_s] = job.speed(visit.configuration)
    change_s = float(np.mean(CHANGE_S))
    for visit in course.visits[1:]:
        speeds[(times >= visit.at_s - change_s) & (times < visit.at_s)] *= calibration.PARTIAL_RATE
    width = round(SLOW_S / step_s)
    means = np.convolve(speeds, np.full(width, 1.0 / width), mode="valid")
    return float(means.min() / job.speed(course.visits[0].configuration))


def stays_of(worlds: Iterable[World], seeds: Sequence[int], told: Callable[[str], None]) -> Iterator[Stay]:
    """Simulates every start, history and seed in every world. told: is called with the name of each finished world."""
    for of in worlds:
        for start in STARTS:
            for past in HISTORIES:
                for seed in seeds:
                    yield stay_of(of, start, past, seed)
        told(of.name)


# --- figures ----------------------------------------------------------------------------------------------------------


class Figures(msgspec.Struct, frozen=True):
    """All runs."""

    runs: tuple[Stay, ...]


class Summary(msgspec.Struct, frozen=True):
    """Figures of some runs. calm: share with at most two plan changes and no 5 s below 0.85. until_s: median, P90."""

    runs: int
    calm: float
    changes: float
    most_changes: int
    slowest: float
    slowest_p5: float
    near: float
    until_s: float
    until_s_p90: float
    final: float
    final_p10: float
    over: float


def summary_of(runs: Sequence[Stay]) -> Summary:
    """Computes the figures of some runs."""
    until = np.array([NEVER_S if run.until_s is None else run.until_s for run in runs])
    slowest, final = (np.array([getattr(run, name) for run in runs]) for name in ("slowest", "final"))
    return Summary(
        runs=len(runs),
        calm=float(np.mean([run.is_calm for run in runs])),
        changes=float(np.mean([run.changes for run in runs])),
        most_changes=max(run.changes for run in runs),
        slowest=float(np.median(slowest)),
        slowest_p5=float(np.quantile(slowest, 0.05)),
        near=float(np.mean(until < NEVER_S)),
        until_s=float(np.median(until)),
        until_s_p90=float(np.quantile(until, 0.9, method="inverted_cdf")),
        final=float(np.mean(final)),
        final_p10=float(np.quantile(final, 0.1)),
        over=float(np.mean([run.over for run in runs])),
    )


HEADER = ("runs", "calm", "changes", "most", "slowest 5 s", "P5", "near", "until, s", "P90", "final", "P10", "over")


def _shown(name: str, one: Summary) -> tuple[str, ...]:
    def seconds(value: float) -> str:
        return "never" if value >= NEVER_S else f"{value:.0f}"

    return (
        name,
        str(one.runs),
        f"{one.calm:.2f}",
        f"{one.changes:.1f}",
        str(one.most_changes),
        f"{one.slowest:.2f}",
        f"{one.slowest_p5:.2f}",
        f"{one.near:.2f}",
        seconds(one.until_s),
        seconds(one.until_s_p90),
        f"{one.final:.3f}",
        f"{one.final_p10:.3f}",
        f"{one.over:.1%}",
    )


def show(runs: Sequence[Stay]) -> None:
    keys: tuple[tuple[str, Callable[[Stay], str]], ...] = (
        ("by start and history", lambda run: f"{run.start}, {run.history}"),
        ("by start and length", lambda run: f"{run.start}, {run.length_s:.0f} s"),
        ("by world, from the best", lambda run: run.world if run.start == "best" else ""),
        ("by world, from a bad one", lambda run: run.world if run.start == "bad" else ""),
    )
    for title, key in keys:
        names = [name for name in dict.fromkeys(map(key, runs)) if name]
        print(f"\n{title}")
        rows = [(name, [run for run in runs if key(run) == name]) for name in names]
        print_table(("", *HEADER), [_shown(name, summary_of(ones)) for name, ones in rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints its figures. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6, help="number of seeds for each job, start and history")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="run only worlds with this text in their name")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args(arguments)
    every: tuple[World, ...] = (*still_worlds(), *HOSTS)
    worlds = [one for one in every if options.only in one.name]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs = list(stays_of(worlds, seeds, lambda text: print(text, file=sys.stderr, flush=True)))
    show(runs)
    if options.json:
        write_json("stay", Figures(tuple(runs)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
