"""Whether the live tuner leaves a good run alone and improves a bad one, with real runs on a quiet machine.

    python -m benchmarks.tuner.stay_live [--job examples/retail.toml] [--for 100] [--rounds 5]
                                         [--start best|bad|off] [--history empty|like|unlike] [--set KEY=VALUE] [--json]

Each round runs every combination of a start and a history once, every second round backwards. The best start is the
default plan (a worker for each core and one PS); the bad start is one worker and four PS. The history is empty; or has
runs of the same job (`like`); or has two small jobs of another kind that count as neighbours (distance 0.8, `unlike`).
The runs for a history are made once before, with the same tuner. Speeds are of committed samples, in windows of 5 s
from the first sample on, without the first window, in which rows are new and slower. `slowest`: the slowest window
divided by the median of the windows before the first plan change (of all windows without a change). `until`: seconds
until a window from which on the mean of all windows is within 5 % of the best known speed, which is the highest median
of the last windows over all runs with the best start. `final`: mean of the last 20 s divided by that best known speed.

The start `off` (the best plan without a tuner, in the same rounds) shows how much of `slowest` is noise of the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.harness.aggregates import spread_of
from benchmarks.harness.aims import Verdict, at_least, is_any_missed
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Measurement, Rounds
from benchmarks.harness.output import print_table, write_json
from benchmarks.harness.runner import print_verdicts, run, say
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.tuner.endless_run import running_job
from benchmarks.tuner.live import LAST_S, WINDOW_S, plan_name
from elastichost.chaos.tails import AppliedTail
from elastichost.history.features import JobRecord
from elastichost.history.store import History
from elastichost.runs.decisions import DECISIONS_FILE
from elastichost.tuner.facts import Configuration
from elastichost.tuner.records import Record, TunerLooked

__all__ = ["Course", "Figures", "Row", "main", "rows_of", "visits_of"]

NEAR, FLOOR, MOST_CHANGES = 0.95, 0.85, 2
# 80 epochs of the retail data take about six minutes: the tuner plans for that time, but a run is stopped earlier
LENGTH = {"train.epochs": "80", "checkpoint.every_s": "0", "evaluate.every_samples": "0", "data.test": "[]"}
CORES = len(os.sched_getaffinity(0))
BEST_PLAN = {"tuner.first_plan": f"{{ workers = {CORES}, servers = 1, worker_cores = 1 }}"}
STARTS = {
    "best": BEST_PLAN,
    "bad": {"tuner.first_plan": "{ workers = 1, servers = 4, worker_cores = 1 }"},
    "off": {**BEST_PLAN, "tuner.mode": "off"},  # with one history only, because it uses none
}
SMALL = {"train.epochs": "4", "train.batch_size": "170", "tables.default.dim": "8"}
# the `--set` options of the runs that fill a history; each takes half a minute and runs to its end
HISTORIES: dict[str, tuple[dict[str, str], ...]] = {
    "empty": (),
    "like": ({"train.epochs": "8"}, {"train.epochs": "8"}),
    "unlike": (
        {**SMALL, "model.args": "{ bottom = [16, 8], top = [16, 1] }"},
        {**SMALL, "model.args": "{ bottom = [64, 32, 8], top = [64, 1] }", "tuner.first_plan": "{ workers = 1 }"},
    ),
}
TAUGHT_S = 300.0  # time limit of a run that fills a history


class Course(msgspec.Struct, frozen=True):
    """One run. rates: samples/s of consecutive windows from the first sample on. visits: (seconds from then, plan)."""

    start: str
    history: str
    rates: tuple[float, ...]
    visits: tuple[tuple[float, str], ...]

    @property
    def changes(self) -> int:
        return max(0, len(self.visits) - 1)  # a run without a tuner has no visits

    @property
    def in_the_end(self) -> float:
        return float(np.mean(self.rates[-int(LAST_S / WINDOW_S) :]))

    @property
    def slowest(self) -> float:
        """The slowest window / the median of the windows of the first plan."""
        first_s = self.visits[1][0] if self.changes else float("inf")
        own = [rate for number, rate in enumerate(self.rates) if number > 0 and (number + 1) * WINDOW_S <= first_s]
        return float(min(self.rates[1:]) / np.median(own or self.rates[:1]))

    def until_s(self, best: float) -> float | None:
        for number in range(len(self.rates)):
            if float(np.mean(self.rates[number:])) >= NEAR * best and self.rates[number] >= 0.9 * NEAR * best:
                return number * WINDOW_S
        return None


FIGURES = (
    Figure[Course]("changes", "", lambda course: course.changes, form=".0f"),
    Figure[Course]("slowest 5 s", "", lambda course: course.slowest, form=".2f"),
    Figure[Course]("samples/s in the end", "", lambda course: course.in_the_end, form=",.0f"),
)


class Row(msgspec.Struct, frozen=True):
    """Figures over all rounds of one start and history. until_s: None for a run that was never near the best."""

    start: str
    history: str
    calm: int
    runs: int
    changes: tuple[int, ...]
    slowest: tuple[float, ...]
    until_s: tuple[float | None, ...]
    final: tuple[float, ...]
    plans: tuple[str, ...]


class Figures(msgspec.Struct, frozen=True):
    """The rows, in the order in which they were measured."""

    rows: tuple[Row, ...]


def rows_of(courses: Sequence[Course]) -> tuple[Row, ...]:
    """Computes one row for each start and history."""
    good = [course.in_the_end for course in courses if course.start == "best"]
    best = float(np.median(good or [max(course.in_the_end for course in courses)]))
    found = []
    for start, history in dict.fromkeys((course.start, course.history) for course in courses):
        ones = [course for course in courses if (course.start, course.history) == (start, history)]
        found.append(
            Row(
                start,
                history,
                calm=sum(one.changes <= MOST_CHANGES and one.slowest >= FLOOR for one in ones),
                runs=len(ones),
                changes=tuple(one.changes for one in ones),
                slowest=tuple(one.slowest for one in ones),
                until_s=tuple(one.until_s(best) for one in ones),
                final=tuple(one.in_the_end / best for one in ones),
                plans=tuple(" ".join(plan for _, plan in one.visits) for one in ones),
            )
        )
    return tuple(found)


# --- runs -------------------------------------------------------------------------------------------------------------


@contextmanager
def _history(path: Path) -> Iterator[None]:
    """Sets the history file that runs read and write."""
    before = os.environ.get("ELASTICHOST_HISTORY")
    os.environ["ELASTICHOST_HISTORY"] = str(path)
    try:
        yield
    finally:
        del os.environ["ELASTICHOST_HISTORY"]
        if before is not None:
            os.environ["ELASTICHOST_HISTORY"] = before


def _taught(job: Path, history: str, folder: Path, more: Mapping[str, str]) -> Path:
    """Fills a history of a kind. Raises RuntimeError if a run fails or leaves no record in it."""
    path = folder / f"{history}.sqlite"
    for number, settings in enumerate(HISTORIES[history]):
        run_dir = folder / f"{history}-{number}"
        said = run_dir.with_suffix(".log")
        chosen = {**LENGTH, **settings, **more}
        overrides = [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "elastichost", "run", str(job), "--dashboard", "no", "--run-dir", str(run_dir)]
        with _history(path), said.open("w") as log:
            code = subprocess.run([*command, *overrides], stdout=log, stderr=log, timeout=TAUGHT_S).returncode
        if code != 0 or not path.exists() or len(_records(path)) != number + 1:
            raise RuntimeError(f"{history}: a run ended with {code} and left no record: {said.read_text()[-2000:]}")
    return path


def _records(path: Path) -> tuple[JobRecord, ...]:
    with History(path) as known:
        return tuple(one for one in known.records() if one.is_measured)


def _tell(one: Measurement[Course]) -> None:
    if (course := one.found) is not None:
        plans = " ".join(plan for _, plan in course.visits)
        said = f"{plans}, {course.slowest:.2f}, {course.in_the_end:,.0f} samples/s in the end"
        say(f"{one.round} {one.arm}: {said}")


def _course(
    job: Path, start: str, history: str, known: Path, seconds: float, more: Mapping[str, str], _: int
) -> Course:
    with tempfile.TemporaryDirectory() as folder:
        run_dir, own = Path(folder) / "run", Path(folder) / "history.sqlite"
        if known.exists():
            shutil.copy(known, own)  # a copy, so that a round does not use the records of an earlier round
        settings = {**LENGTH, **STARTS[start], **more}
        with _history(own), running_job(job, settings, run_dir, keeps_history=True):
            began_s, rates = _rates(run_dir, seconds)
            records = [
                msgspec.json.decode(line, type=Record)
                for line in (run_dir / DECISIONS_FILE).read_bytes().splitlines()[:-1]
            ]
        return Course(start, history, rates, visits_of(records, began_s))


def visits_of(records: Sequence[Record], began_s: float) -> tuple[tuple[float, str], ...]:
    """The plans that ran, with their starts in seconds from `began_s`."""
    found: list[tuple[float, Configuration]] = []
    for record in records:
        if not isinstance(record, TunerLooked) or record.look.configuration is None:
            continue
        if not found or found[-1][1] != record.look.configuration:
            found.append((record.look.at_s, record.look.configuration))
    return tuple((at_s - began_s, plan_name(plan)) for at_s, plan in found)


def _rates(run_dir: Path, seconds: float) -> tuple[float, tuple[float, ...]]:
    """The time of the first committed batch, and samples/s of the windows from then on."""
    tail = AppliedTail(run_dir)
    while tail.samples == 0:
        time.sleep(0.01)
        tail.poll()
    began_s = edge_s = time.monotonic()
    counted, rates = tail.samples, list[float]()
    while edge_s < began_s + seconds - WINDOW_S / 2:
        time.sleep(max(0.0, edge_s + WINDOW_S - time.monotonic()))
        tail.poll()
        now_s = time.monotonic()
        rates.append((tail.samples - counted) / (now_s - edge_s))
        edge_s, counted = now_s, tail.samples
    return began_s, tuple(rates)


# --- output -----------------------------------------------------------------------------------------------------------


def show(rows: Sequence[Row]) -> None:
    print_table(
        ("start, history", "calm", "changes", "slowest 5 s", "until, s", "final", "plans"),
        [
            (
                f"{row.start}, {row.history}",
                f"{row.calm} of {row.runs}",
                " ".join(map(str, row.changes)),
                str(spread_of(row.slowest)),
                " ".join("never" if one is None else f"{one:.0f}" for one in row.until_s),
                str(spread_of(row.final)),
                "; ".join(row.plans),
            )
            for row in rows
        ],
    )


def verdicts_of(rows: Sequence[Row]) -> list[Verdict]:
    """The verdicts: a good start must be left alone in every run."""
    calm = at_least(1.0, "calm runs")
    return [
        replace(calm, arm=f"{row.start}, {row.history}").judge(row.calm / row.runs)
        for row in rows
        if row.start == "best"
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 1 if a run from a good start is not calm, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=Path, default=EXAMPLES / "retail.toml")
    parser.add_argument("--for", dest="seconds", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--start", choices=list(STARTS), help="run only this start")
    parser.add_argument("--history", choices=list(HISTORIES), help="run only with this history")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all runs")
    options = parser.parse_args(arguments)
    more = dict(one.split("=", 1) for one in options.set)
    starts = [options.start] if options.start else list(STARTS)
    histories = [options.history] if options.history else list(HISTORIES)
    with tempfile.TemporaryDirectory() as folder:
        arms = [(start, history) for start in starts for history in (histories[:1] if start == "off" else histories)]
        needed = dict.fromkeys(history for _, history in arms)
        known = {history: _taught(options.job, history, Path(folder), more) for history in needed}
        outcome = run(
            Benchmark(
                title="courses of the tuner",
                arms={
                    f"{start}, {history}": partial(
                        _course, options.job, start, history, known[history], options.seconds, more
                    )
                    for start, history in arms
                },
                rounds=Rounds(options.rounds),
                figures=FIGURES,
            ),
            _tell,
        )
    courses = [one.found for one in outcome.measured if one.found is not None]
    rows = rows_of(courses)
    show(rows)
    verdicts = verdicts_of(rows)
    print()
    print_verdicts(verdicts)
    if options.json:
        write_json("stay_live", Figures(rows), verdicts)
    return int(is_any_missed(verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
