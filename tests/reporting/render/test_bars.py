"""The axis below rows of bars."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.reporting.render.bars import MOST_TICKS, ticks_of


@pytest.mark.parametrize(
    ("most", "are_seconds", "at"),
    [
        (10.0, False, [0, 2, 4, 6, 8, 10]),
        (2_300_000.0, False, [0, 500_000, 1_000_000, 1_500_000, 2_000_000]),
        (20.0, True, [0, 5, 10, 15, 20]),
        (400.0, True, [0, 120, 240, 360]),
        (0.0, False, [0]),
    ],
)
def test_ticks_are_round(most: float, are_seconds: bool, at: list[float]) -> None:
    assert [tick.at for tick in ticks_of(most, are_seconds=are_seconds)] == at


@given(st.floats(1e-3, 1e12), st.booleans())
def test_ticks_are_few_and_on_the_axis(most: float, are_seconds: bool) -> None:
    ticks = ticks_of(most, are_seconds=are_seconds)
    assert 1 <= len(ticks) <= MOST_TICKS
    assert all(0 <= tick.left <= 100.001 for tick in ticks)
