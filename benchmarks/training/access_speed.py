"""Speed of the synthetic job by number of workers, with direct and with served access.

Every arm is a separate run, started from the command line. The figures cover the training phase only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES, TrainingResult, train

__all__ = ["Case", "benchmark_of", "cases", "main"]

ACCESS = ("direct", "served")
FIGURES = (
    Figure[TrainingResult]("samples/s", "", lambda one: one.samples_per_s, form=",.0f"),
    Figure[TrainingResult]("wall", "s", lambda one: one.wall_s, form=".1f"),
    Figure[TrainingResult]("rows", "MB", lambda one: one.arena_bytes / 1e6, form=".0f"),
    Figure[TrainingResult]("AUC", "", lambda one: one.test.auc, form=".4f"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its access and number of workers."""

    access: str
    workers: int

    @property
    def name(self) -> str:
        return f"{self.access}, {self.workers} worker{'s' if self.workers > 1 else ''}"


def cases(most_workers: int) -> Iterator[Case]:
    """1, 2, 4, ... workers up to `most_workers`, each with direct and served access."""
    counts = [1 << power for power in range(most_workers.bit_length()) if 1 << power <= most_workers]
    for access in ACCESS:
        for workers in counts:
            yield Case(access, workers)


def measure(case: Case, rows: int, runs: Path) -> TrainingResult:
    """Runs the job. Raises CalledProcessError if it fails; its messages are on stderr."""
    settings = {
        "data.synthetic.rows": rows,
        "data.synthetic.test_rows": max(1, rows // 10),
        "train.access": case.access,
        "resources.workers": case.workers,
    }
    return train(EXAMPLES / "synthetic.toml", settings, runs / f"{case.access}-{case.workers}")


def benchmark_of(most_workers: int, rows: int, runs: Path) -> Benchmark[TrainingResult]:
    def arm(case: Case) -> Callable[[int], TrainingResult]:
        return lambda _: measure(case, rows, runs)

    return Benchmark(
        title=f"the synthetic job, {rows:,} samples",
        arms={case.name: arm(case) for case in cases(most_workers)},
        rounds=Rounds(1),
        figures=FIGURES,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="number of training samples of each run")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="largest number of workers")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as runs:
        outcome = run(benchmark_of(chosen.workers, chosen.rows, Path(runs)))
    print_outcomes([outcome])
    return exit_code([outcome])
