"""The cases of the training benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.training import retail_quality
from benchmarks.training.access_speed import Case, cases


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (3, [1, 2]), (8, [1, 2, 4, 8])])
def test_workers_double_up_to_the_most(most: int, counts: list[int]) -> None:
    found = list(cases(most))
    assert found[: len(counts)] == [Case("direct", count) for count in counts]
    assert found[len(counts) :] == [Case("served", count) for count in counts]


def test_quality_is_measured_in_every_access_mode_and_kind_of_table_and_with_every_model() -> None:
    names = [case.name for case in retail_quality.cases()]
    assert len(names) == len(set(names)) == 8 + 3 + 6 + 4
    assert {name.split()[0].rstrip(",") for name in names} == {"dlrm", "wide_deep", "deepfm", "dcn", "xdeepfm"}
