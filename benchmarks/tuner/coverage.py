"""Coverage of the tuner's 90 % intervals on jobs that its model has not seen, by job, with the width of the intervals.

    python -m benchmarks.tuner.coverage [--quick] [--json]

One number of the model follows from recorded jobs: the scale of errors on unseen jobs (`queueing.TRANSFER`). So for
each job of the grids the scale is chosen on the other jobs: the one whose mean coverage there is nearest to 90 %. Then
the coverage on this job is measured. Jobs are left out and not points, because the errors of one job are alike, so its
points are no independent examples. `shipped` is the coverage with the scale of the product.

The model gets some random configurations of a job and predicts the others, corrected by measurements as in the tuner.
Coverage: share of the true speeds inside the interval, widened by the standard error of the true speed. Width: median
ratio of the upper to the lower end of an interval.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from benchmarks.harness.output import print_table, write_json
from benchmarks.tuner.real import truth_of
from benchmarks.tuner.recorded_grid import GridCase, read_grids
from elastichost.tuner.facts import as_array
from elastichost.tuner.models.base import NORMAL_90
from elastichost.tuner.models.queueing import TRANSFER, QueueingSettings, fit
from elastichost.tuner.models.residual_gp import surface

__all__ = ["COUNTS", "Coverage", "Figures", "JobCoverage", "coverage_of", "main", "unseen"]

COUNTS = (1, 2, 3, 5, 10)  # numbers of measured configurations
SCALES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
AIM = 0.9
SEEDS, QUICK_SEEDS = 20, 4


class Coverage(msgspec.Struct, frozen=True):
    """The coverage and the median width (ratio) of intervals."""

    coverage: float
    width: float


class JobCoverage(msgspec.Struct, frozen=True):
    """The coverage on one job. scale: chosen on the other jobs. unseen: coverage with it. shipped: coverage with
    `queueing.TRANSFER`. Both are by number of measured configurations."""

    job: str
    scale: float
    unseen: dict[int, Coverage]
    shipped: dict[int, Coverage]


class Figures(msgspec.Struct, frozen=True):
    """The coverage on every job."""

    jobs: tuple[JobCoverage, ...]


def coverage_of(case: GridCase, number: int, scale: float, seeds: int) -> dict[int, Coverage]:
    """The coverage on one job by number of measured configurations. number: of the job, a part of the seed."""
    truth, found = truth_of(case), dict[int, Coverage]()
    array, settings = as_array(truth.configurations), QueueingSettings(transfer=scale)
    for count in COUNTS:
        covered, widths = list[float](), list[float]()
        for seed in range(seeds):
            order = np.random.default_rng([seed, number, 2]).permutation(len(array))
            seen, held = order[:count], order[count:]
            observations = tuple(truth.observations[at] for at in seen)
            fitted = fit(case.workload, observations, settings=settings)
            told = surface(fitted, observations, None).at(array[held])
            reach = NORMAL_90 * np.hypot(told.log_error, truth.log_error)
            covered.append(float(np.mean(np.abs(np.log(told.samples_per_s / truth.samples_per_s[held])) <= reach)))
            widths.append(float(np.median(np.exp(2 * NORMAL_90 * told.log_error))))
        found[count] = Coverage(float(np.mean(covered)), float(np.median(widths)))
    return found


def unseen(cases: Sequence[GridCase], seeds: int) -> tuple[JobCoverage, ...]:
    """The coverage on every job with the scale that suits the other jobs. Needs two jobs or more."""
    by_scale = {
        scale: [coverage_of(case, number, scale, seeds) for number, case in enumerate(cases)]
        for scale in dict.fromkeys((*SCALES, TRANSFER))
    }
    rows = []
    for number, case in enumerate(cases):
        scale = min(SCALES, key=lambda one: abs(_mean(by_scale[one], but=number) - AIM))
        rows.append(JobCoverage(case.name, scale, by_scale[scale][number], by_scale[TRANSFER][number]))
    return tuple(rows)


def _mean(found: Sequence[Mapping[int, Coverage]], but: int) -> float:
    others = [one for number, one in enumerate(found) if number != but]
    return float(np.mean([each.coverage for one in others for each in one.values()]))


def show(rows: Sequence[JobCoverage]) -> None:
    """Prints the table on stdout."""

    def words(name: str, scale: str, ones: Sequence[Mapping[int, Coverage]]) -> tuple[str, ...]:
        cells = []
        for count in COUNTS:
            covered = np.mean([one[count].coverage for one in ones])
            cells.append(f"{covered:.0%} ({np.median([one[count].width for one in ones]):.2f})")
        return name, scale, *cells

    print("Coverage of 90 % intervals on unseen jobs (width) by number of measured configurations\n")
    lines = [words(row.job, f"{row.scale:g}", [row.unseen]) for row in rows]
    lines.append(words("all jobs", "", [row.unseen for row in rows]))
    lines.append(words("all jobs, shipped", f"{TRANSFER:g}", [row.shipped for row in rows]))
    print_table(("job", "scale", *map(str, COUNTS)), lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 3 with fewer than two recorded jobs, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    cases = [case for _, grid in read_grids() for case in grid.cases]
    if len(cases) < 2:
        print("two recorded jobs are needed", file=sys.stderr)
        return 3
    rows = unseen(cases, QUICK_SEEDS if options.quick else SEEDS)
    show(rows)
    if options.json:
        write_json("coverage", Figures(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
