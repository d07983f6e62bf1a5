"""Ranges that are joined and cut hold the same bytes, each once."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.datasets.sources.byte_ranges import joined_ranges, requests_of

RANGES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)).map(lambda one: (one[0], sum(one))), max_size=12)


@given(ranges=RANGES, gap=st.integers(0, 50))
def test_joined_ranges_hold_all_bytes_in_order_and_no_two_are_near(ranges: list[tuple[int, int]], gap: int) -> None:
    found = joined_ranges(ranges, gap)
    held = {byte for start, stop in found for byte in range(start, stop)}
    assert held >= {byte for start, stop in ranges for byte in range(start, stop)}
    assert all(after[0] - before[1] > gap for before, after in pairwise(found))


@given(ranges=RANGES, size=st.integers(1, 100))
def test_requests_hold_every_byte_of_the_ranges_once(ranges: list[tuple[int, int]], size: int) -> None:
    joined = joined_ranges(ranges, 0)
    found = list(requests_of(joined, size))
    assert all(0 < stop - start <= size for start, stop in found)
    assert [byte for start, stop in found for byte in range(start, stop)] == [
        byte for start, stop in joined for byte in range(start, stop)
    ]


def test_a_size_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="range_bytes=0"):
        list(requests_of([(0, 1)], 0))
