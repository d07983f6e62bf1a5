"""The live tuner against the best static plan of a grid: where it ends, how soon, and what it costs on the way.

    python -m benchmarks.tuner.live [--job examples/retail.toml] [--for 60] [--rounds 3] [--json]

Each round runs, in turns: the job with everything "auto" from the default plan, the same from a bad plan (one worker,
one PS), and every static plan of the short list, each for so many seconds of training. Speeds are of samples committed
(the PS' own log), in windows of WINDOW_S, from the first sample on. Quiet machine, half an hour.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.measuring import Spread, print_table, spread_of, write_json
from benchmarks.running import EXAMPLES
from benchmarks.tuner.running import running_job
from elastichost.chaos.tails import AppliedTail

__all__ = ["Course", "Figures", "figures_of", "main"]

WINDOW_S = 5.0
LAST_S = 20.0  # of which "in the end" is
LEAST_WINDOWS = 3  # from "soon" on
STATIC = ("1x1", "2x1", "3x1", "4x1", "2x2")  # workers x PS x threads
ENDLESS = {"train.epochs": "1000", "checkpoint.every_s": "0", "evaluate.every_samples": "0", "data.test": "[]"}


class Course(msgspec.Struct, frozen=True):
    """One run. rates: samples/s of consecutive windows from the first sample on."""

    name: str
    rates: tuple[float, ...]

    @property
    def in_the_end(self) -> float:
        return float(np.mean(self.rates[-int(LAST_S / WINDOW_S) :]))


class Figures(msgspec.Struct, frozen=True):
    """end_over_best: speed of the last windows over that of the best static plan. least_over_default: slowest window
    over the default plan's mean. soon_s: seconds of training until every later window's mean is within 5 % of the best;
    None: never."""

    static: dict[str, Spread]
    best: str
    end_over_best: dict[str, Spread]
    least_over_default: dict[str, Spread]
    soon_s: dict[str, tuple[float | None, ...]]
    courses: tuple[Course, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=Path, default=EXAMPLES / "retail.toml")
    parser.add_argument("--for", dest="seconds", type=float, default=60.0)
    parser.add_argument("--static-for", dest="static_s", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    courses: list[Course] = []
    for number in range(options.rounds):
        arms = ["default", "bad", *STATIC]
        for name in arms[:: -1 if number % 2 else 1]:
            seconds = options.seconds if name in ("default", "bad") else options.static_s
            courses.append(_course(options.job, name, seconds))
            print(f"{name}: {courses[-1].in_the_end:,.0f} samples/s in the end", file=sys.stderr, flush=True)
    found = figures_of(courses)
    _show(found)
    if options.json:
        write_json("live", found)
    return 0


def _settings(name: str) -> dict[str, str]:
    if name == "default":
        return {"tuner.warm_start": "false"}
    if name == "bad":
        return {"tuner.warm_start": "false", "tuner.first_plan": "{ workers = 1, servers = 1, worker_cores = 1 }"}
    workers, servers, *threads = name.split("x")
    first = f"{{ workers = {workers}, servers = {servers}, worker_cores = {threads[0] if threads else 1} }}"
    return {"tuner.mode": '"watch"', "tuner.warm_start": "false", "tuner.first_plan": first}


def _course(job: Path, name: str, seconds: float) -> Course:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        with running_job(job, {**ENDLESS, **_settings(name)}, run_dir):
            return Course(name, _rates(run_dir, seconds))


def _rates(run_dir: Path, seconds: float) -> tuple[float, ...]:
    """From the first committed batch on."""
    tail = AppliedTail(run_dir / "applied.bin")
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


def figures_of(courses: Sequence[Course]) -> Figures:
    """The default plan is the first static one that `default` begins with: two workers a PS, on two cores."""
    static = {
        name: spread_of([course.in_the_end for course in courses if course.name == name])
        for name in STATIC
        if any(course.name == name for course in courses)
    }
    best = max(static, key=lambda name: static[name].median)
    top, usual = static[best].median, static["2x1"].median
    tuned = {name: [course for course in courses if course.name == name] for name in ("default", "bad")}
    return Figures(
        static=static,
        best=best,
        end_over_best={name: spread_of([one.in_the_end / top for one in ones]) for name, ones in tuned.items()},
        least_over_default={
            # the first window of a bad start is as bad as its plan
            name: spread_of([min(one.rates) / usual for one in ones])
            for name, ones in tuned.items()
        },
        soon_s={name: tuple(_soon_s(one, 0.95 * top) for one in ones) for name, ones in tuned.items()},
        courses=tuple(courses),
    )


def _soon_s(course: Course, enough: float) -> float | None:
    """When the mean of all that follows is enough; a window more or less is noise."""
    for number in range(len(course.rates) - LEAST_WINDOWS + 1):
        if float(np.mean(course.rates[number:])) >= enough and course.rates[number] >= 0.9 * enough:
            return number * WINDOW_S
    return None


def _show(found: Figures) -> None:
    rows = [
        (name, f"{rate.median:,.0f}", f"{rate.least:,.0f} to {rate.most:,.0f}") for name, rate in found.static.items()
    ]
    print_table(("static plan", "samples/s", "range"), rows)
    print(f"\nbest: {found.best}\n")
    tuned = []
    for name, end in found.end_over_best.items():
        soon = ", ".join("never" if one is None else f"{one:.0f}" for one in found.soon_s[name])
        tuned.append((name, str(end), str(found.least_over_default[name]), soon))
    print_table(("start", "end / best", "slowest window / default plan", "s until within 5 %"), tuned)


if __name__ == "__main__":
    raise SystemExit(main())
