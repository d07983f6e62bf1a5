"""Speed of the synthetic job, for several numbers of workers and both ways of access.

Every line is a run of its own, started as a user would start it; figures are of the training phase only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.training_run import EXAMPLES, Measurement, train

ACCESS = ("direct", "served")


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its access and number of workers."""

    access: str
    workers: int


def cases(most_workers: int) -> Iterator[Case]:
    """1, 2, 4, ... workers up to the most, each with direct and served access."""
    counts = [1 << power for power in range(most_workers.bit_length()) if 1 << power <= most_workers]
    for access in ACCESS:
        for workers in counts:
            yield Case(access, workers)


def measure(case: Case, rows: int, runs: Path) -> Measurement:
    """Runs the job. Raises CalledProcessError when it fails; its messages are on stderr then."""
    settings = {
        "data.synthetic.rows": rows,
        "data.synthetic.test_rows": max(1, rows // 10),
        "train.access": case.access,
        "resources.workers": case.workers,
    }
    return train(EXAMPLES / "synthetic.toml", settings, runs / f"{case.access}-{case.workers}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000, help="training samples of every run")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="the most workers")
    chosen = parser.parse_args()
    print(f"{'access':<8}{'workers':>8}{'samples/s':>12}{'wall s':>9}{'rows MB':>9}{'AUC':>8}")
    with tempfile.TemporaryDirectory() as runs:
        for case in cases(chosen.workers):
            found = measure(case, chosen.rows, Path(runs))
            print(
                f"{case.access:<8}{case.workers:>8}{found.samples_per_s:>12,.0f}{found.wall_s:>9.1f}"
                f"{found.arena_bytes / 1e6:>9.0f}{found.test.auc:>8.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
