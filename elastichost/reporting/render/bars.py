"""Rows of bars: what is categorical, such as jobs or configurations, on a common axis. Pure.

Places are in percent of the axis. A template renders the rows as a table with an SVG strip in each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

__all__ = ["Bar", "BarRow", "BarTable", "Tick", "ticks_of"]

MOST_TICKS = 6
SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


class Bar(msgspec.Struct, frozen=True):
    """A bar from left to left + width. dot: a point on it; the bar is then the interval around the point. top, height:
    in pixels of the strip. kind: CSS classes."""

    left: float
    width: float
    top: float
    height: float
    kind: str
    tip: str
    dot: float | None = None


class BarRow(msgspec.Struct, frozen=True):
    """A row. value: text at its end. words: the bars as a sentence, for readers who do not see them."""

    name: str
    bars: tuple[Bar, ...]
    value: str
    words: str


class Tick(msgspec.Struct, frozen=True):
    left: float
    at: float


class BarTable(msgspec.Struct, frozen=True):
    """caption: what the rows are. ticks: (percent, text). key: (CSS class, name) of each kind of bar. height: of a
    strip, in pixels."""

    caption: str
    name: str
    value: str
    rows: tuple[BarRow, ...]
    ticks: tuple[tuple[float, str], ...]
    axis: str
    key: tuple[tuple[str, str], ...]
    height: int = 16


def ticks_of(most: float, *, are_seconds: bool = False) -> tuple[Tick, ...]:
    """Round places from zero to `most`, at most MOST_TICKS of them."""
    if most <= 0:
        return (Tick(0.0, 0.0),)
    step = _step(most, SECONDS if are_seconds else ())
    return tuple(Tick(100 * at * step / most, at * step) for at in range(int(most / step) + 1))


def _step(most: float, known: Sequence[int]) -> float:
    """The least round step with at most MOST_TICKS - 1 steps."""
    for step in known:
        if most / step < MOST_TICKS:
            return float(step)
    power = 10.0 ** math.floor(math.log10(most / MOST_TICKS))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if most / (power * factor) < MOST_TICKS)
