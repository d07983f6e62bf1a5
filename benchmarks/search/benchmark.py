"""Search: the time of a search whose trials share this host, beside the same trials one after another.

    python -m elastichost bench search --rounds 3

Arms: `together`: `elastichost search`; `one at a time`: the same search, whose dispatcher runs one trial at a time in
the size that the trial chooses alone; `commands`: `elastichost run` for each trial, as a loop over Optuna's `ask` does,
with the start of a process and its imports for each. All train the same trials: Optuna draws the first ten at random,
and their values follow from the seed. `--quick` only tries whether everything runs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import ArmFailedError, Rounds
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.search.trials import MOST_TRIALS, SearchRun, commands_one_by_one, search_with, write_job

__all__ = ["ARMS", "COMMANDS", "ONE_BY_ONE", "TOGETHER", "benchmark_of", "main"]

TOGETHER, ONE_BY_ONE, COMMANDS = "together", "one at a time", "commands"
ARMS = (TOGETHER, ONE_BY_ONE, COMMANDS)


def benchmark_of(measured: Mapping[str, Callable[[int], SearchRun]], rounds: int) -> Benchmark[SearchRun]:
    """measured: the function that measures a round, by arm."""

    def ratio(one: SearchRun, other: SearchRun) -> float:
        if one.values != other.values:
            raise ArmFailedError("the arms did not train the same trials")
        return one.wall_s / other.wall_s

    pairs = {arm: f"time, {TOGETHER} over {arm}" for arm in (ONE_BY_ONE, COMMANDS)}
    return Benchmark(
        title="A search: median (least-most)",
        arms=measured,
        rounds=Rounds(rounds),
        figures=(
            Figure("time", "s", lambda one: one.wall_s, form=".1f"),
            Figure("best AUC", "", lambda one: one.best, form=".4f"),
        ),
        pairs=tuple(PairedFigure(name, "", TOGETHER, arm, ratio) for arm, name in pairs.items()),
        aims=tuple(Aim(name, 1.0, "at most") for name in pairs.values()),
    )


def arms_of(job: Path, trials: int, folder: Path) -> dict[str, Callable[[int], SearchRun]]:
    """The function that measures a round, by arm."""

    def search(arm: str, options: Sequence[str], number: int) -> SearchRun:
        return search_with(options, job, trials, folder / f"{arm}-{number}")

    def commands(number: int) -> SearchRun:
        return commands_one_by_one(job, trials, folder / f"commands-{number}")

    return {
        TOGETHER: partial(search, "together", ()),
        ONE_BY_ONE: partial(search, "one", ("--policy", "exclusive")),
        COMMANDS: commands,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each arm (3)")
    parser.add_argument("--trials", type=int, default=8, choices=range(1, MOST_TRIALS + 1), help="trials (8)")
    parser.add_argument("--rows", type=int, default=2_000_000, help="training samples of a trial (2,000,000)")
    parser.add_argument("--quick", action="store_true", help="one short round: tries that everything runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(arguments)
    rounds, trials, rows = (1, 2, 20_000) if chosen.quick else (chosen.rounds, chosen.trials, chosen.rows)
    with tempfile.TemporaryDirectory(prefix="elastichost-benchmark-") as name:
        folder = Path(name)
        outcome = run(benchmark_of(arms_of(write_job(folder, rows), trials, folder), rounds))
    print_outcomes([outcome])
    if chosen.json:
        figures = {
            arm: {figure.name: outcome.figure(figure.name, arm) for figure in outcome.benchmark.figures} for arm in ARMS
        }
        write_json("search", figures, outcome.verdicts())
    return 0 if chosen.quick else exit_code([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
