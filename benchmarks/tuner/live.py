"""The live tuner compared with the best static plan: its last plan, its time, and its cost on the way.

    python -m benchmarks.tuner.live [--job examples/retail.toml] [--for 60] [--rounds 6] [--json]

A machine varies from minute to minute by more than plans differ, so each figure is a ratio of speeds measured close in
time:

- courses: each round runs the job with everything "auto" from the default plan, from a bad plan (one worker, one PS),
  and with the default plan and no tuner. Speeds are of committed samples (from the log of the PS), in windows of
  WINDOW_S from the first sample on. They are compared window by window, because rows are new, and slower, in the first
  epoch.
- plans: one run is then scaled back and forth between the short list and all plans with which the tuner ended.

The speed relative to the best static plan is (speed / speed of the default plan in the same round and window) times
(speed of the default plan / speed of the best static plan). Takes half an hour on a quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.harness.aggregates import Spread, spread_of
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Measurement, Rounds
from benchmarks.harness.output import print_table, write_json
from benchmarks.harness.runner import run, say
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.tuner.endless_run import running_job
from benchmarks.tuner.grid_record import COMMON, ENDLESS, Looks, measure
from elastichost.chaos.tails import AppliedTail
from elastichost.runs.decisions import DECISIONS_FILE
from elastichost.tuner.facts import Configuration
from elastichost.tuner.records import Record, TunerLooked

__all__ = ["ARMS", "Course", "Figures", "PlanBlocks", "figures_of", "main", "plan_name"]

Floats = npt.NDArray[np.float64]
WINDOW_S = 5.0
LAST_S = 20.0  # "in the end" is the mean of these last seconds
LEAST_WINDOWS = 3  # least number of windows after "soon"
ENOUGH = 0.95  # share of the best static plan's speed that counts as near it
SHORT_LIST = ("2x1", "3x1", "4x1", "2x2", "1x1x2")  # workers x PS x threads: the best plans of the grid
PLAN_ROUNDS = 6
UNJUDGED = {"data.test": "[]"}
ARMS = {
    "default": {"tuner.warm_start": "false"},
    "bad": {"tuner.warm_start": "false", "tuner.first_plan": "{ workers = 1, servers = 1, worker_cores = 1 }"},
    "alone": {"tuner.warm_start": "false", "tuner.mode": '"watch"'},
}
TUNED = ("default", "bad")


class Course(msgspec.Struct, frozen=True):
    """One run. name: of ARMS. plan: its last plan. rates: samples/s of consecutive windows from the first sample on."""

    name: str
    plan: str
    rates: tuple[float, ...]

    @property
    def in_the_end(self) -> float:
        return float(np.mean(self.rates[-int(LAST_S / WINDOW_S) :]))


class PlanBlocks(msgspec.Struct, frozen=True):
    """One plan of a run that was scaled back and forth: samples/s in each round."""

    plan: str
    rates: tuple[float, ...]


class Figures(msgspec.Struct, frozen=True):
    """All figures; "a over b" is a ratio of speeds. plans: each plan over the best one, by round. ended: the last plan
    of each round. end_over_best: the last windows over the best static plan. plan_over_best: the last plan over the
    best one, from `plans`. course: over the best static plan, window by window, median over rounds. soon_s: seconds of
    training until all later windows are within 5 %, None for never. least_over_default: the slowest window over the
    same window of the default plan, of the median course and by round. alone_by_chance: the same figure for the default
    plan over itself one round later."""

    plans: dict[str, Spread]
    best: str
    ended: dict[str, tuple[str, ...]]
    end_over_best: dict[str, Spread]
    plan_over_best: dict[str, Spread]
    course: dict[str, tuple[float, ...]]
    soon_s: dict[str, float | None]
    least_over_default: dict[str, float]
    least_by_round: dict[str, Spread]
    alone_by_chance: Spread | None
    courses: tuple[Course, ...]
    blocks: tuple[PlanBlocks, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and prints its figures. Returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=Path, default=EXAMPLES / "retail.toml")
    parser.add_argument("--for", dest="seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    outcome = run(courses_of(options.job, options.seconds, options.rounds), _tell)
    courses = [one.found for one in outcome.measured if one.found is not None]
    found = figures_of(courses, _plan_blocks(options.job, {course.plan for course in courses}))
    _show(found)
    if options.json:
        write_json("live", found)
    return 0


def courses_of(job: Path, seconds: float, rounds: int) -> Benchmark[Course]:
    """The benchmark with one run of each of ARMS in every round."""
    return Benchmark(
        title="courses of the tuner",
        arms={name: partial(_course, job, name, seconds) for name in ARMS},
        rounds=Rounds(rounds),
        figures=(Figure("samples/s in the end", "", lambda course: course.in_the_end, form=",.0f"),),
    )


# --- runs -------------------------------------------------------------------------------------------------------------


def _tell(one: Measurement[Course]) -> None:
    if (course := one.found) is not None:
        say(f"{one.arm}: {course.plan}, {course.in_the_end:,.0f} samples/s in the end")


def plan_name(plan: Configuration) -> str:
    """The name of a plan: workers x PS x threads."""
    return f"{plan.workers}x{plan.servers}" + (f"x{plan.worker_cores}" if plan.worker_cores > 1 else "")


def _plan_named(name: str) -> Configuration:
    workers, servers, *threads = map(int, name.split("x"))
    return Configuration(workers, servers, threads[0] if threads else 1)


def _course(job: Path, name: str, seconds: float, _: int) -> Course:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        with running_job(job, {**ENDLESS, **UNJUDGED, **ARMS[name]}, run_dir):
            rates = _rates(run_dir, seconds)
            return Course(name, plan_name(_running(run_dir)), rates)


def _running(run_dir: Path) -> Configuration:
    """The plan of the newest look. Raises RuntimeError if there is no look."""
    for line in reversed((run_dir / DECISIONS_FILE).read_bytes().splitlines()[:-1]):
        record = msgspec.json.decode(line, type=Record)
        if isinstance(record, TunerLooked) and record.look.configuration is not None:
            return record.look.configuration
    raise RuntimeError(f"{run_dir / DECISIONS_FILE}: no look of the tuner was recorded")


def _rates(run_dir: Path, seconds: float) -> tuple[float, ...]:
    """The rates of all windows from the first committed batch on."""
    tail = AppliedTail(run_dir)
    while tail.samples == 0:
        time.sleep(0.01)
        tail.poll()
    edge_s, counted, rates = time.monotonic(), tail.samples, list[float]()
    until_s = edge_s + seconds
    while edge_s < until_s - WINDOW_S / 2:
        time.sleep(max(0.0, edge_s + WINDOW_S - time.monotonic()))
        tail.poll()
        now_s = time.monotonic()
        rates.append((tail.samples - counted) / (now_s - edge_s))
        edge_s, counted = now_s, tail.samples
    return tuple(rates)


def _plan_blocks(job: Path, ended: Iterable[str]) -> tuple[PlanBlocks, ...]:
    """Measures the short list and the last plans of the tuner, in mixed order in each round."""
    plans = list(dict.fromkeys([*SHORT_LIST, *sorted(ended)]))
    rates: dict[str, list[float]] = {plan: [] for plan in plans}
    shuffled = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        looks = Looks(run_dir / DECISIONS_FILE)
        with running_job(job, {**COMMON, **UNJUDGED}, run_dir):
            looks.wait()
            for number in range(PLAN_ROUNDS + 1):
                shuffled.shuffle(plans)
                for plan in plans:
                    rate = measure(run_dir, looks, _plan_named(plan)).samples_per_s
                    if number > 0:  # the first round contains the first epoch, which is slower
                        rates[plan].append(rate)
                        print(f"{plan}: {rate:,.0f} samples/s", file=sys.stderr, flush=True)
    return tuple(PlanBlocks(plan, tuple(found)) for plan, found in rates.items())


# --- figures ----------------------------------------------------------------------------------------------------------


def figures_of(courses: Sequence[Course], blocks: Sequence[PlanBlocks]) -> Figures:
    """Computes the figures. courses: the same number for each of ARMS, by round."""
    by_arm = {name: [course for course in courses if course.name == name] for name in ARMS}
    best = max(blocks, key=lambda one: float(np.median(one.rates)))
    plans = {one.plan: spread_of(np.divide(one.rates, best.rates).tolist()) for one in blocks}
    alone = by_arm["alone"]
    level = plans[alone[0].plan].median
    # speed over the default plan's speed, by round and window
    shares = {name: [_shares(*pair) for pair in zip(by_arm[name], alone, strict=True)] for name in TUNED}
    middle = {name: np.median(ones, axis=0) for name, ones in shares.items()}
    ends = {
        name: [level * one.in_the_end / usual.in_the_end for one, usual in zip(by_arm[name], alone, strict=True)]
        for name in TUNED
    }
    chance = [float(_shares(later, one).min()) for one, later in itertools.pairwise(alone)]
    return Figures(
        plans=plans,
        best=best.plan,
        ended={name: tuple(one.plan for one in by_arm[name]) for name in TUNED},
        end_over_best={name: spread_of(ends[name]) for name in TUNED},
        plan_over_best={name: spread_of([plans[one.plan].median for one in by_arm[name]]) for name in TUNED},
        course={name: tuple((level * middle[name]).tolist()) for name in TUNED},
        soon_s={name: _soon_s(level * middle[name]) for name in TUNED},
        least_over_default={name: float(middle[name].min()) for name in TUNED},
        least_by_round={name: spread_of([float(one.min()) for one in shares[name]]) for name in TUNED},
        alone_by_chance=spread_of(chance) if chance else None,
        courses=tuple(courses),
        blocks=tuple(blocks),
    )


def _shares(course: Course, usual: Course) -> Floats:
    """The ratio of the rates window by window, float64 [n]."""
    count = min(len(course.rates), len(usual.rates))
    shares: Floats = np.array(course.rates[:count]) / np.array(usual.rates[:count])
    return shares


def _soon_s(course: Floats) -> float | None:
    """The first time from which the mean of all later windows is at least ENOUGH; a mean, because windows are noisy."""
    for number in range(len(course) - LEAST_WINDOWS + 1):
        if float(course[number:].mean()) >= ENOUGH and course[number] >= 0.9 * ENOUGH:
            return number * WINDOW_S
    return None


def _show(found: Figures) -> None:
    rows = [(name, str(share)) for name, share in found.plans.items()]
    print_table(("plan", f"speed over that of {found.best}, by round"), rows)
    print()
    tuned = []
    for name in found.ended:
        soon = found.soon_s[name]
        tuned.append(
            (
                name,
                ", ".join(found.ended[name]),
                str(found.plan_over_best[name]),
                str(found.end_over_best[name]),
                "never" if soon is None else f"{soon:.0f}",
                f"{found.least_over_default[name]:.2f}",
                str(found.least_by_round[name]),
            )
        )
    header = ("start", "ended with", "that plan / best", "end / best", "s until within 5 %", "slowest / default's")
    print_table((*header, "by round"), tuned)
    if found.alone_by_chance is not None:
        print(f"\nslowest window of the default plan over itself, a round later: {found.alone_by_chance}")


if __name__ == "__main__":
    raise SystemExit(main())
