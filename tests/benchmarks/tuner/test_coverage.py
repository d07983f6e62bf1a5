"""Coverage of the intervals on jobs that the model has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.tuner.coverage import COUNTS, coverage_of, unseen
from benchmarks.tuner.recorded_grid import read_grids

CASES = [case for _, grid in read_grids() for case in grid.cases]


def test_nine_of_ten_speeds_of_unseen_jobs_are_inside_the_intervals() -> None:
    """The scale of errors is chosen without the job; by job the share differs more."""
    rows = unseen(CASES, seeds=2)
    assert len(rows) == len(CASES) >= 7
    for count in COUNTS:
        covered = np.mean([row.unseen[count].coverage for row in rows])
        assert 0.82 <= covered <= 0.97, (count, covered)
    assert min(each.coverage for row in rows for each in row.unseen.values()) > 0.5


@pytest.mark.parametrize("count", [1, 3])
def test_intervals_that_trust_the_model_are_too_narrow(count: int) -> None:
    found = [coverage_of(case, number, 1.0, seeds=2)[count] for number, case in enumerate(CASES)]
    assert np.mean([one.coverage for one in found]) < 0.82
