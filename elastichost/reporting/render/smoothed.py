"""Curves with fewer points, which show their course through the noise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean

__all__ = ["MOST_POINTS", "Point", "smoothed"]

Point = tuple[float, float]  # place, value
MOST_POINTS = 200  # more would show noise


def smoothed(points: Sequence[Point], most: int = MOST_POINTS) -> tuple[list[float], list[float]]:
    """(places, values) with at most `most` points: each is the mean of neighbouring points, at the last of them.
    Points at the same place become one."""
    every = -(-len(points) // most) or 1
    parts = [points[at : at + every] for at in range(0, len(points), every)]
    merged = [list(same) for _, same in groupby(parts, key=lambda part: part[-1][0])]
    return (
        [same[-1][-1][0] for same in merged],
        [fmean(value for part in same for _, value in part) for same in merged],
    )
