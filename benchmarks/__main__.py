"""Speed of the synthetic job, for several numbers of workers and both ways of access.

Every line is a run of its own, started as a user would start it; figures are of the training phase only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

JOB = Path(__file__).parent.parent / "examples" / "synthetic.toml"
ACCESS = ("direct", "served")


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its access and number of workers."""

    access: str
    workers: int


class Quality(msgspec.Struct, frozen=True):
    auc: float


class Measurement(msgspec.Struct, frozen=True):
    """The part of a run's JSON result that is compared."""

    status: str
    samples_per_s: float
    wall_s: float
    arena_bytes: int
    test: Quality


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
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    run_dir = runs / f"{case.access}-{case.workers}"
    command = [sys.executable, "-m", "elastichost", "run", str(JOB), "--json", "--run-dir", str(run_dir), *overrides]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Measurement)


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
