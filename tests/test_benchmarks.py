"""The benchmarks measure what they say."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import Case, cases


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (3, [1, 2]), (8, [1, 2, 4, 8])])
def test_workers_double_up_to_the_most(most: int, counts: list[int]) -> None:
    found = list(cases(most))
    assert found[: len(counts)] == [Case("direct", count) for count in counts]
    assert found[len(counts) :] == [Case("served", count) for count in counts]
