"""Curves with fewer points."""

from __future__ import annotations

from elastichost.reporting.render.smoothed import smoothed


def test_neighbours_become_their_mean() -> None:
    assert smoothed([(1.0, 2.0), (2.0, 4.0), (3.0, 5.0)], most=2) == ([2.0, 3.0], [3.0, 5.0])


def test_a_short_curve_stays() -> None:
    assert smoothed([(1.0, 2.0), (2.0, 4.0)]) == ([1.0, 2.0], [2.0, 4.0])
    assert smoothed([]) == ([], [])


def test_points_at_one_place_become_one() -> None:
    assert smoothed([(1.0, 2.0), (1.0, 4.0), (2.0, 6.0)]) == ([1.0, 2.0], [3.0, 6.0])
