"""Whether running out of memory is predicted in time: simulated runs of known growth, most of them near their budget.

`python -m benchmarks.tuner.memory [--quick] [--json] [--real]`. The true growth never follows the fitted law: new ids
are drawn from Pitman-Yor processes (Pitman & Yor 1997; discount d gives Heaps' n^d in the long run): mixed, drifting,
in bursts, exhausted, and absent in later epochs. Memory grows in the steps of an index, at a rate that varies. The
tuner gets the figures of a run once a second. Its first alarm is correct if the budget is exceeded before the end of
the run, and in time if this happens later than an action takes; then the run survives. With the tuner off, each run
that exceeds its budget dies. There are three arms: no history of the job; a history of the job itself; and a history of
another job that is misleading but looks similar. `--real` also runs a real job (`real_runs`).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.aggregates import Interval, bootstrap
from benchmarks.harness.aims import Verdict, at_least, bounds_of, is_any_missed
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import print_verdicts
from benchmarks.tuner.memory.real_runs import RealRun, real_runs, real_words
from elastichost.history.features import Estimates
from elastichost.tuner.memory.facts import HostMemorySample, MemorySample
from elastichost.tuner.memory.forecast import begin, decide
from elastichost.tuner.memory.growth import GrowthState, observe
from elastichost.tuner.memory.prior import learnt

__all__ = ["ARMS", "KINDS", "ArmFigures", "Figures", "Outcome", "main", "measure", "reaches", "simulate", "verdicts_of"]

Float64 = npt.NDArray[np.float64]

KINDS = ("heaps", "mixed", "drift", "bursts", "exhausted", "epochs")
ARMS = ("unknown", "known", "misknown")
ROW_BYTES, COPY_BYTES, SLOT_BYTES = 80.0, 80.0, 16.0
INDEX_GROWTH = 1.4  # size of a generation of an index, relative to the generation before
INDEX_PEAK = 1 + INDEX_GROWTH  # both generations exist while the index grows
SLOTS_PER_ROW = 2.2  # just after the buckets of an index have grown
LEAST_ROWS = 1e5
ALL_OF_A_ROW = ROW_BYTES + COPY_BYTES + INDEX_PEAK * SLOT_BYTES * SLOTS_PER_ROW
MOST_LOOKS = 1500
AIMS = (at_least(0.9, "precision"), at_least(0.95, "recall"))
PRECISION, RECALL = AIMS


@dataclass(frozen=True, slots=True)
class Run:
    """A run without any action, look by look: seconds, samples, created rows, bytes used, and bytes as the tuner counts
    them, with indexes at their peak."""

    kind: str
    at_s: Float64
    samples: Float64
    rows: Float64
    used: Float64
    seen: Float64
    budget: float
    action_s: float
    new_ids_until: int

    @property
    def exceeds_s(self) -> float | None:
        beyond = np.flatnonzero(self.used > self.budget)
        return float(self.at_s[beyond[0]]) if len(beyond) else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run. alarm_s: time of the first alarm. exceeds_s: time at which the budget is exceeded. None:
    never. A budget that is exceeded within the time of two actions cannot be predicted in time."""

    kind: str
    alarm_s: float | None
    exceeds_s: float | None
    action_s: float

    @property
    def is_seen(self) -> bool:
        """Whether the alarm came in time."""
        if self.alarm_s is None or self.exceeds_s is None:
            return False
        return self.exceeds_s - self.alarm_s >= self.action_s


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """Figures of one arm. exceeding: runs that exceed their budget later than two actions take. die_off, die_on: runs
    that die with the tuner off and on. leads: (time from a correct alarm to the exceeded budget) / (time of an action),
    quantiles 5 % and 50 %. Intervals of precision and recall are bootstraps over runs."""

    arm: str
    runs: int
    exceeding: int
    alarms: int
    precision: Interval
    recall: Interval
    die_off: int
    die_on: int
    median_lead_s: float
    leads: tuple[float, float]
    looks_per_s: float
    recall_by_kind: dict[str, float]


class Figures(msgspec.Struct, frozen=True):
    """All figures. arms: by name, on the same runs. real: of the real job, empty without it."""

    arms: dict[str, ArmFigures]
    real: tuple[RealRun, ...] = ()
    aims: dict[str, float] = msgspec.field(default_factory=lambda: bounds_of(AIMS))


# --- the truth --------------------------------------------------------------------------------------------------------


def simulate(kind: str, random: np.random.Generator) -> Run:
    """Simulates runs until one grows to a minimum size, and returns that."""
    while True:
        run = _simulate(kind, random)
        if run.rows[-1] >= LEAST_ROWS:
            return run


def _simulate(kind: str, random: np.random.Generator) -> Run:
    duration_s = float(np.exp(random.uniform(math.log(120), math.log(3 * 3600))))
    looks = min(MOST_LOOKS, int(duration_s))
    step_s = duration_s / looks
    rates = float(np.exp(random.uniform(math.log(5e3), math.log(2e5)))) * _wander(looks, random)
    samples: Float64 = np.cumsum(rates * step_s)
    epochs = int(random.integers(2, 5)) if kind == "epochs" else 1
    per_epoch = samples[-1] / epochs
    rows = _rows(kind, np.minimum(samples, per_epoch), rates * step_s * (samples <= per_epoch), random)
    used = rows * (ROW_BYTES + COPY_BYTES) + INDEX_PEAK * SLOT_BYTES * _slots(rows, random)
    grown = float(used.max())
    base = grown * float(np.exp(random.uniform(math.log(0.2), math.log(10))))
    noise = min(2e6, 0.002 * grown) * random.standard_normal(looks)
    used += base + noise
    seen = base + noise + rows * (ROW_BYTES + COPY_BYTES + INDEX_PEAK * SLOT_BYTES * SLOTS_PER_ROW)
    budget = base + grown * float(np.exp(random.uniform(math.log(0.5), math.log(2.0))))
    known_until = int(per_epoch) if epochs > 1 and random.random() < 0.75 else 0
    at_s = step_s * np.arange(1, looks + 1, dtype=np.float64)
    action_s = min(float(np.exp(random.uniform(math.log(2), math.log(60)))), duration_s / 10)
    return Run(kind, at_s, samples, rows, used, seen, budget, action_s, known_until)


def _wander(looks: int, random: np.random.Generator) -> Float64:
    """Factors exp(AR(1)) with rho 0.7, like the rates of real runs."""
    noise, values = 0.15 * random.standard_normal(looks), np.zeros(looks)
    for number in range(1, looks):
        values[number] = 0.7 * values[number - 1] + noise[number]
    return np.exp(values)


def _rows(kind: str, samples: Float64, taken: Float64, random: np.random.Generator) -> Float64:
    tables = int(random.integers(3, 8)) if kind in ("mixed", "exhausted") else 1
    ids = float(random.integers(1, 27)) / tables
    total = np.zeros(len(samples))
    factor = _bursts(len(samples), random) if kind == "bursts" else np.ones(len(samples))
    drift = float(random.uniform(0.001, 0.02)) if kind == "drift" else 0.0
    for _ in range(tables):
        discount = float(random.uniform(0.4, 0.95))
        strength = float(np.exp(random.uniform(math.log(10), math.log(3e4))))
        most = float(np.exp(random.uniform(math.log(1e4), math.log(3e6)))) if kind == "exhausted" else math.inf
        made = 0.0
        for number, count in enumerate(taken):
            tokens = ids * max(samples[number] - 0.5 * count, 0.0)
            chance = (strength + discount * made) / (strength + tokens) * max(0.0, 1.0 - made / most) + drift
            expected = ids * count * min(1.0, chance * factor[number])
            # The chance of a new id falls within a step, which matters only at the beginning of a run.
            expected = min(expected, most - made)
            made += float(random.poisson(expected)) if expected > 0 else 0.0
            total[number] += made
    return total


def _bursts(looks: int, random: np.random.Generator) -> Float64:
    """Factors on the number of new ids, which rise several times in bursts."""
    factor = np.ones(looks)
    for _ in range(int(random.integers(1, 4))):
        begin, length = int(random.integers(0, looks)), int(random.integers(max(1, looks // 50), max(2, looks // 6)))
        factor[begin : begin + length] *= float(random.uniform(2, 8))
    return factor


def _slots(rows: Float64, random: np.random.Generator) -> Float64:
    """Published slots of an index of 16 buckets; each grows by INDEX_GROWTH at a random fill level."""
    buckets = 16
    fills = (9 + np.arange(buckets) / buckets) / 16
    capacity, slots = np.full(buckets, 1e3 * float(random.uniform(1, INDEX_GROWTH))), np.empty(len(rows))
    for number, count in enumerate(rows / buckets):
        while (crowded := count > fills * capacity).any():
            capacity[crowded] *= INDEX_GROWTH
        slots[number] = capacity.sum()
    return slots


# --- the tuner --------------------------------------------------------------------------------------------------------


def judge(run: Run, known: Estimates = Estimates()) -> tuple[Outcome, int]:  # noqa: B008, frozen
    """The outcome with the tuner's first alarm, and the number of looks."""
    state = begin(known)
    row_bytes = ALL_OF_A_ROW
    exceeds_s = run.exceeds_s
    for number, now_s in enumerate(run.at_s):
        if exceeds_s is not None and now_s >= exceeds_s:
            return Outcome(run.kind, None, exceeds_s, run.action_s), number
        samples, made = int(run.samples[number]), float(run.rows[number]) * row_bytes
        before = max(0, number - 5)
        passed_s = float(now_s - run.at_s[before]) or float(now_s)
        rate = float(run.samples[number] - run.samples[before]) / passed_s if number else samples / float(now_s)
        host = HostMemorySample(0, int(run.budget), int(run.seen[number]), made, 1.0)
        look = MemorySample(
            samples=samples,
            samples_left=int(run.samples[-1]) - samples,
            samples_per_s=rate,
            made_bytes=made,
            row_bytes=row_bytes,
            live_bytes=made,
            own_bytes=0.0,
            hosts=(host,),
            possible=("evict",),
            action_s=run.action_s,
            new_ids_until=run.new_ids_until,
        )
        state, decision = decide(state, look, float(now_s))
        if decision.kind != "stay":
            return Outcome(run.kind, float(now_s), exceeds_s, run.action_s), number + 1
    return Outcome(run.kind, None, exceeds_s, run.action_s), len(run.at_s)


def taught(run: Run) -> Estimates:
    """The estimates that a run with enough memory leaves in the history."""
    state, until = GrowthState(), run.new_ids_until or math.inf
    for samples, rows in zip(run.samples, run.rows, strict=True):
        if samples <= until:
            state = observe(state, int(samples), float(rows) * ALL_OF_A_ROW, ALL_OF_A_ROW)
    return learnt(state, float(run.rows[-1]) * ALL_OF_A_ROW)


def outcomes(seeds: Sequence[int], arm: str = "unknown") -> Iterator[tuple[Outcome, int]]:
    for seed in seeds:
        for kind_number, kind in enumerate(KINDS):
            run, known = simulate(kind, np.random.default_rng((seed, kind_number))), Estimates()
            if arm != "unknown":
                other = simulate(kind, np.random.default_rng((seed, kind_number, 1)))
                known = taught(run if arm == "known" else other)
            yield judge(run, known)


def measure(seeds: Sequence[int], arm: str = "unknown") -> ArmFigures:
    """Simulates one run of each kind for every seed."""
    began_s = time.perf_counter()
    found = list(outcomes(seeds, arm))
    looks = sum(count for _, count in found)
    took_s = time.perf_counter() - began_s
    each = [outcome for outcome, _ in found]
    exceeding = [one for one in each if one.exceeds_s is not None and one.exceeds_s > 2 * one.action_s]
    alarms = [one for one in each if one.alarm_s is not None]
    right = [one for one in alarms if one.exceeds_s is not None]
    seen, of_kind = Counter(one.kind for one in exceeding if one.is_seen), Counter(one.kind for one in exceeding)
    leads = [one.exceeds_s - one.alarm_s for one in right if one.exceeds_s is not None and one.alarm_s is not None]
    ratios = [lead / one.action_s for lead, one in zip(leads, right, strict=True)]
    dying = [one for one in each if one.exceeds_s is not None]
    return ArmFigures(
        arm=arm,
        runs=len(each),
        exceeding=len(exceeding),
        alarms=len(alarms),
        precision=_share([one.exceeds_s is not None for one in alarms]),
        recall=_share([one.is_seen for one in exceeding]),
        die_off=len(dying),
        die_on=sum(not one.is_seen for one in dying),
        median_lead_s=float(np.median(leads)) if leads else 0.0,
        leads=(float(np.quantile(ratios, 0.05)), float(np.median(ratios))) if ratios else (0.0, 0.0),
        looks_per_s=looks / took_s,
        recall_by_kind={kind: seen[kind] / of_kind[kind] for kind in KINDS if of_kind[kind]},
    )


def _share(are: Sequence[bool]) -> Interval:
    return bootstrap(np.array(are, dtype=np.float64)) if are else Interval(0.0, 0.0, 0.0)


def words(found: ArmFigures) -> str:
    f = found
    kinds = "  ".join(f"{kind} {share:.2f}" for kind, share in f.recall_by_kind.items())
    return (
        f"{f.arm}: {f.runs} runs, {f.exceeding} exceed their budget late enough to be predicted, {f.alarms} alarms\n"
        f"  precision {f.precision.shown('.3f')}, aim {PRECISION.bound}  "
        f"recall in time {f.recall.shown('.3f')}, aim {RECALL.bound}\n"
        f"  die: {f.die_off} with the tuner off, {f.die_on} with it\n"
        f"  lead: median {f.median_lead_s:.0f} s; relative to the time of an action: 5 % below {f.leads[0]:.1f}, "
        f"median {f.leads[1]:.1f}\n"
        f"  {f.looks_per_s:,.0f} looks per second, including the simulation\n  recall: {kinds}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 1 if an aim is missed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuner.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 seeds instead of 60")
    parser.add_argument("--real", action="store_true", help="also run a real job four times (a minute)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    seeds = range(3 if chosen.quick else 60)
    figures = Figures({arm: measure(seeds, arm) for arm in ARMS}, tuple(real_runs()) if chosen.real else ())
    print("\n".join([*(words(one) for one in figures.arms.values()), *(real_words(one) for one in figures.real)]))
    print()
    print_verdicts(verdicts_of(figures))
    if chosen.json:
        write_json("memory", figures, verdicts_of(figures))
    return 0 if reaches(figures) else 1


def verdicts_of(figures: Figures) -> list[Verdict]:
    """The verdicts for the arms without history and with the job's own history; the misleading history has no aim."""
    judged = [figures.arms[arm] for arm in ("unknown", "known")]
    values = [(arm.arm, aim, share.mean) for arm in judged for aim, share in zip(AIMS, _shares(arm), strict=True)]
    return [replace(aim, arm=arm).judge(value) for arm, aim, value in values]


def _shares(arm: ArmFigures) -> tuple[Interval, Interval]:
    return arm.precision, arm.recall


def reaches(figures: Figures) -> bool:
    """Whether no aim is missed."""
    return not is_any_missed(verdicts_of(figures))


if __name__ == "__main__":
    sys.exit(main())
