"""Input: the tuner of the input against the best knobs of a grid, tf.data, torch's DataLoader and an RL agent.

    python -m elastichost bench input                         five rounds: about six hours
    python -m elastichost bench input --workers 1             five rounds, consumers of one worker: two and a half hours
    python -m elastichost bench input --case "remote, jitter" --workers 1    one case: a quarter of an hour
    python -m elastichost bench input --quick                 one round of fewer cases and a coarse grid: six minutes

Whole runs: `examples/synthetic.toml` on a source of 7.4 MB/s for each connection, with the tuner, without it, and with
fixed numbers of connections; the figure is the speed from 22 s after the first sample on (10 s where nothing is tuned).
Pipelines: one worker's reading pipeline, without training, read by a consumer of a fixed speed. In each round every arm
finds its knobs for the same time and is then measured in a window. The consumer computes elsewhere, as an accelerator
does. The grid is measured in one run; knobs that are clearly behind after a third of their time are not measured to
the end (the number is printed). In a quick run it has fewer values, and the DataLoader's number of processes is not
searched. `over exhaustive` and the others are the tuner's speed over that of the other arm, paired by round.

tf.data reads the same Parquet files in a Python of its own (`--tensorflow-python PATH`, benchmarks/requirements-
tensorflow.txt and pyarrow); without it the arm is left out, and is null in the JSON.

After the bandwidth halves: the tuner has found its knobs at the whole bandwidth; 15 s after it has halved, its speed is
measured beside the best of a grid that was measured at half of the bandwidth.

Consumers of 4 and 16 workers are emulated: one consumer that takes 4 or 16 times as many samples a second from one
pipeline, because a host of two cores has no room for 16 workers. In the case with a cache the arms of our pipeline
keep what they read; the tuner has to switch that on itself.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.harness.aggregates import typical
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import ArmFailedError, Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run, say
from benchmarks.harness.workshop import Workshop
from benchmarks.input.arms import ArmSettings, Measured, best_of_grid, measure_auto, measure_fixed, measure_rl
from benchmarks.input.cases import CASES, Case, opened_case, served_case, write_files
from benchmarks.input.data_loader import measure_data_loader, tuned_processes
from benchmarks.input.figures import AUTO, BEST, LEAST_SHARE, SPEED, ratio_to
from benchmarks.input.halved import halved
from benchmarks.input.live import LiveRun, live_run
from benchmarks.input.pipeline_run import BATCH_SIZE
from benchmarks.input.tfdata import has_tensorflow, measure_tfdata
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.warm import warm_kernels
from elastichost.human_readable import plural
from elastichost.wire.facts import InputKnobs

__all__ = ["main"]

MAXIMUM, OFF, LOADER, RL, TFDATA = "maximum", "off", "DataLoader", "rl", "tf.data"
OVER = Figure[Measured]("bytes over the bound", "", lambda one: float(one.over_bytes), max, form=",.0f", arms=(AUTO,))
LIVE_SPEED = Figure[LiveRun]("speed", "samples/s", lambda one: one.samples_per_s, form=",.0f")
WORKERS = Figure[LiveRun]("most trainer processes", "", lambda one: float(one.workers), max, form=".0f")
MEMORY_BYTES = 256 << 20
MOST_WORKERS = 2
LEAST_SPEED = 150_000.0
MAKE_TENSORFLOW = (
    "make an environment that has them, and name it: python -m venv DIR && "
    "DIR/bin/pip install -r benchmarks/requirements-tensorflow.txt pyarrow && "
    "python -m elastichost bench input --tensorflow-python DIR/bin/python"
)


@dataclass(frozen=True, slots=True)
class Extent:
    """How long and how much is measured. workers: numbers of workers that the
    consumers stand for, each with `each_samples_per_s`."""

    rounds: int
    rows: int
    tune_s: float
    window_s: float
    grid_s: float
    workers: tuple[int, ...]
    processes: tuple[int, ...]
    connections: tuple[int, ...]
    is_coarse: bool
    each_samples_per_s: float = 2e5


WHOLE = Extent(5, 400_000, 20.0, 5.0, 1.5, (1, 4, 16), (1, 2, 4, 8), (1, 2, 3, 4, 5, 6, 8, 12), is_coarse=False)
QUICK = Extent(1, 130_000, 12.0, 3.0, 1.2, (1,), (2,), (4, 6), is_coarse=True, each_samples_per_s=1.5e5)
LIVE_CASE = "remote 7.4 MB/s"
HALVED_CASES = ("remote, capped per connection", "remote, capped per link")
QUICK_CASES = ("parquet", "remote, capped per connection")


def pipelines_of(case: Case, arm: ArmSettings, extent: Extent, tensorflow: str) -> Benchmark[Measured]:
    """The benchmark of one case and consumer."""
    found = best_of_grid(arm, extent.grid_s, is_coarse=extent.is_coarse)
    best = found.best
    processes = tuned_processes(arm, extent.processes, extent.window_s / 2)
    say(f"{case.name}: the best of a grid of {found.sets} is {best} ({found.cut} were behind and cut short)")
    say(f"{case.name}: the best DataLoader has {processes} processes (of {extent.processes})")
    most = InputKnobs(32, 4, 64, arm.memory_bytes, 8 << 20, arm.cache)
    arms: dict[str, Callable[[int], Measured]] = {
        AUTO: lambda number: with_knobs_told(case, measure_auto(arm)),
        BEST: lambda number: measure_fixed(arm, best),
        OFF: lambda number: measure_fixed(arm, InputKnobs()),
        MAXIMUM: lambda number: measure_fixed(arm, most),
        RL: lambda number: measure_rl(arm, number),
        LOADER: lambda number: Measured(measure_data_loader(arm, processes, extent.window_s), InputKnobs()),
    }
    if tensorflow and arm.settings.format == "parquet":
        arms[TFDATA] = lambda number: Measured(tfdata_speed(tensorflow, arm), InputKnobs())
    pairs = tuple(ratio_to(other) for other in (BEST, RL, LOADER, TFDATA, OFF, MAXIMUM) if other in arms)
    aims = (Aim(f"over {BEST}", LEAST_SHARE, "at least"), Aim(f"over {RL}", 1.0, "at least"))
    return Benchmark(
        title="one worker's pipeline: median (least-most)",
        case=case_name(case, arm, extent),
        arms=arms,
        rounds=Rounds(extent.rounds),
        figures=(SPEED, OVER),
        pairs=pairs,
        aims=aims,
    )


def with_knobs_told(case: Case, found: Measured) -> Measured:
    """Prints the knobs that the tuner ended with, and returns what was measured."""
    say(f"{case.name}: the tuner ended with {found.knobs}")
    return found


def case_name(case: Case, arm: ArmSettings, extent: Extent) -> str:
    """The name of the case; in a whole run also the speed of the consumer."""
    workers = round(arm.samples_per_s / extent.each_samples_per_s)
    return case.name if extent.is_coarse else f"{case.name}, {plural(workers, 'worker')}"


def tfdata_speed(python: str, arm: ArmSettings) -> float:
    """Samples/s of tf.data. Raises ArmFailedError."""
    settings = arm.settings
    facts = {
        "path": settings.patterns[0],
        "labels": settings.labels,
        "dense": settings.dense,
        "categorical": settings.categorical,
        "batch_size": BATCH_SIZE,
        "samples_per_s": arm.samples_per_s,
        "tune_s": arm.tune_s,
        "window_s": arm.window_s,
    }
    try:
        return measure_tfdata(python, facts, arm.tune_s + arm.window_s)
    except subprocess.CalledProcessError as error:
        raise ArmFailedError((error.stderr or "").strip().splitlines()[-1][:300]) from error
    except subprocess.TimeoutExpired as error:
        raise ArmFailedError("tf.data did not end in time") from error


def live_of(workshop: Workshop, extent: Extent) -> Benchmark[LiveRun]:
    """The benchmark of whole runs."""
    counted = iter(range(1_000_000))

    def arm(settings: Mapping[str, object], after_s: float, number: int) -> LiveRun:
        return live_run(workshop, f"live-{next(counted)}", settings, after_s, 8.0)

    fixed = {"tuner.mode": "off", "resources.workers": 2}
    arms = {
        AUTO: partial(arm, {}, 22.0),
        OFF: partial(arm, {"tuner.mode": "off"}, 10.0),
        **{
            connected(count): partial(arm, {**fixed, "data.input.connections": count}, 10.0)
            for count in extent.connections
        },
    }
    return Benchmark(
        title="whole runs, 7.4 MB/s for each connection: median (least-most)",
        case=LIVE_CASE,
        arms=arms,
        rounds=Rounds(extent.rounds),
        figures=(LIVE_SPEED, WORKERS),
        aims=(
            Aim(LIVE_SPEED.name, LEAST_SPEED, "at least", AUTO, ",.0f"),
            Aim(WORKERS.name, MOST_WORKERS, "at most", AUTO),
        ),
    )


def connected(count: int) -> str:
    return f"{count} connections"


def measure(workshop: Workshop, extent: Extent, cases: Sequence[Case], tensorflow: str) -> list[Outcome[Measured]]:
    """The outcome of every case and consumer."""
    os.environ["ELASTICHOST_CACHE"] = str(workshop.disk / "cache")  # what is kept of these files goes with them
    warm_kernels()
    write_files(workshop.disk, extent.rows)
    found = []
    for case in cases:
        with opened_case(case, workshop.disk) as settings:
            for workers in extent.workers:
                arm = arm_of(case, settings, workers, extent)
                found.append(run(pipelines_of(case, arm, extent, tensorflow)))
    return found


def arm_of(case: Case, settings: DataSettings, workers: int, extent: Extent) -> ArmSettings:
    """What all arms of a case share when the consumer stands for this number of workers."""
    cores, rate = len(os.sched_getaffinity(0)), workers * extent.each_samples_per_s
    facts = (settings, case.is_remote, rate, MEMORY_BYTES, extent.tune_s, extent.window_s, cores)
    return ArmSettings(*facts, is_cold=case.is_cold, cache=case.cache)


def measure_halved(workshop: Workshop, extent: Extent, cases: Sequence[Case]) -> list[Outcome[Measured]]:
    """The outcome of each case whose bandwidth halves. The files of `measure` are there."""
    found = []
    for case in cases:
        with served_case(case, workshop.disk) as (server, settings):
            arm = arm_of(case, settings, 1, extent)
            facts = (case.name, arm, server, extent.rounds, extent.grid_s)
            found.append(run(halved(*facts, is_coarse=extent.is_coarse)))
    return found


def live_figures(outcome: Outcome[LiveRun]) -> dict[str, float | None]:
    """The figures of whole runs for the JSON output."""

    def speed(arm: str) -> float | None:
        found = outcome.figure(LIVE_SPEED.name, arm)
        return None if found is None else typical(found)

    grid = [found for arm in outcome.benchmark.arms if arm not in (AUTO, OFF) and (found := speed(arm)) is not None]
    workers = outcome.figure(WORKERS.name, AUTO)
    return {
        "auto": speed(AUTO),
        "exhaustive_best": max(grid, default=None),
        "off": speed(OFF),
        "trainer_processes": None if workers is None else typical(workers),
    }


def over(outcomes: Sequence[Outcome[Measured]], arm: str) -> dict[str, float] | None:
    """The tuner's speed over that of another arm, by case; None: no case has this arm."""
    found = {}
    for outcome in outcomes:
        pairs = [pair for pair in outcome.benchmark.pairs if pair.against == arm]
        value = outcome.pair(pairs[0]) if pairs else None
        if value is not None:
            found[outcome.benchmark.case] = round(typical(value), 4)
    return found or None


def beyond_memory(outcomes: Sequence[Outcome[Measured]]) -> int:
    """Number of measurements of the tuner in which more was held ahead than its bound."""
    return sum(one.over_bytes > 0 for outcome in outcomes for one in outcome.values(AUTO))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench input", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round, fewer cases, a coarse grid")
    names = [LIVE_CASE, *(case.name for case in CASES)]
    parser.add_argument("--case", action="append", choices=names, help="repeatable; default: all of them")
    parser.add_argument(
        "--workers", action="append", type=int, choices=WHOLE.workers, help="of a consumer; repeatable; default: all"
    )
    parser.add_argument("--tensorflow-python", default=sys.executable, metavar="PATH", help="a Python with tensorflow")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    extent = QUICK if chosen.quick else replace(WHOLE, workers=tuple(chosen.workers or WHOLE.workers))
    named = chosen.case or ([LIVE_CASE, *QUICK_CASES] if chosen.quick else names)
    cases = [case for case in CASES if case.name in named]
    tensorflow = str(Path(chosen.tensorflow_python))
    if not has_tensorflow(tensorflow):
        say(f"tf.data is left out: {tensorflow} has no tensorflow or no pyarrow; {MAKE_TENSORFLOW}")
        tensorflow = ""
    with Workshop() as workshop:
        live = [run(live_of(workshop, extent))] if LIVE_CASE in named else []
        outcomes = measure(workshop, extent, cases, tensorflow)
        after = measure_halved(workshop, extent, [case for case in cases if case.name in HALVED_CASES])
    print_outcomes(live)
    print_outcomes(outcomes)
    print_outcomes(after)
    if chosen.json:
        figures: dict[str, object] = {
            "remote_7MBps": live_figures(live[0]) if live else None,
            "over_exhaustive": over(outcomes, BEST),
            "after_halving_over_exhaustive": over(after, BEST),
            "over_tfdata": over(outcomes, TFDATA),
            "over_rl": over(outcomes, RL),
            "over_data_loader": over(outcomes, LOADER),
            "oom": beyond_memory(outcomes),
        }
        pipelines = [verdict for outcome in (*outcomes, *after) for verdict in outcome.verdicts()]
        verdicts = [verdict for outcome in live for verdict in outcome.verdicts()] + pipelines
        write_json("input", figures, verdicts)
    return max(exit_code(live), exit_code(outcomes), exit_code(after))
