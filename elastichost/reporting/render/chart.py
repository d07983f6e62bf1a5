"""Charts as data: what the script of a page draws, and what the table below each chart says. Pure.

A chart holds numbers and texts, and no colours or sizes in pixels: a colour is the name of a CSS variable of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from elastichost.reporting.render.text import cleaned

__all__ = [
    "Chart",
    "ChartAxis",
    "ChartMark",
    "ChartPoint",
    "ChartSeries",
    "ChartSpan",
    "SeriesKind",
    "Unit",
    "Values",
    "chart_json",
    "line_of",
]

Values = Sequence[float | None]
# moment: seconds, written as minutes:seconds. percent: 50 is half of a core. share: 0.5 is half. figure: four decimals.
Unit = Literal["moment", "count", "rate", "bytes", "percent", "share", "figure"]
# A value of a step holds until the next one; of step_before and stacked it holds since the one before.
SeriesKind = Literal["line", "step", "step_before", "points", "stacked", "band"]
DIGITS = 7  # of a number in the page; more would only make it larger
_NUMBERS = ("x", "y", "low")
Part = TypeVar("Part", bound=msgspec.Struct)


class ChartAxis(msgspec.Struct, frozen=True):
    """An axis. least, most: the ends of the axis, None: those of the data."""

    label: str
    unit: Unit
    scale: Literal["linear", "log"] = "linear"
    least: float | None = None
    most: float | None = None


class ChartSeries(msgspec.Struct, frozen=True):
    """One series. x ascends. y: None is a gap in the line. low: lower edge of a band. group: series of one group share
    an entry of the legend, which has this name. width: of the line in pixels. is_faint: paler than the others.
    is_dashed: of a limit."""

    name: str
    colour: str
    x: Values
    y: Values
    kind: SeriesKind = "line"
    low: Values = ()
    group: str = ""
    width: float = 1.8
    is_faint: bool = False
    is_dashed: bool = False


class ChartSpan(msgspec.Struct, frozen=True):
    """A time in which something went on; it is shaded."""

    name: str
    colour: str
    begin: float
    end: float
    tip: str


class ChartMark(msgspec.Struct, frozen=True):
    """A vertical line. label: a number at its top, or ""."""

    name: str
    x: float
    tip: str
    label: str = ""
    is_solid: bool = False


class ChartPoint(msgspec.Struct, frozen=True):
    """A single point with a tip. y: None is the foot of the chart."""

    name: str
    colour: str
    x: float
    y: float | None
    tip: str
    shape: Literal["circle", "triangle"] = "circle"


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart. name: letters, digits and dashes, unique in the page. title: what the y axis shows. about: a sentence
    below the chart, or ""."""

    name: str
    title: str
    x: ChartAxis
    y: ChartAxis
    series: tuple[ChartSeries, ...] = ()
    spans: tuple[ChartSpan, ...] = ()
    marks: tuple[ChartMark, ...] = ()
    points: tuple[ChartPoint, ...] = ()
    about: str = ""
    is_tall: bool = False


def line_of(name: str, colour: str, at: Values, values: Values, **more: Any) -> ChartSeries:
    """A series of a course, in which a place of None is a break. more: further fields of ChartSeries."""
    x: list[float] = []
    y: list[float | None] = []
    is_broken = False
    for place, value in zip(at, values, strict=True):
        if place is None:
            is_broken = True
            continue
        if is_broken and x and place > x[-1]:
            x.append((x[-1] + place) / 2)
            y.append(None)
        is_broken = False
        x.append(place)
        y.append(value)
    return ChartSeries(name, colour, x, y, **more)


def chart_json(chart: Chart) -> str:
    """The chart as JSON that can stand in a script element: no text of it ends the element or opens a comment."""
    return msgspec.json.encode(_drawable(chart)).decode().replace("<", "\\u003c").replace(">", "\\u003e")


def _drawable(chart: Chart) -> Chart:
    """The chart without invisible characters in its texts, and with rounded numbers."""
    return msgspec.structs.replace(
        chart,
        title=cleaned(chart.title),
        series=tuple(_rounded(one) for one in _cleaned(chart.series)),
        spans=tuple(_cleaned(chart.spans)),
        marks=tuple(_cleaned(chart.marks)),
        points=tuple(_cleaned(chart.points)),
    )


def _cleaned(parts: Iterable[Part]) -> Iterable[Part]:
    for part in parts:
        texts = {name: getattr(part, name) for name in part.__struct_fields__ if name not in _NUMBERS}
        yield msgspec.structs.replace(
            part, **{name: cleaned(text) for name, text in texts.items() if isinstance(text, str)}
        )


def _rounded(series: ChartSeries) -> ChartSeries:
    def short(values: Values) -> list[float | None]:
        return [None if value is None else float(f"{value:.{DIGITS}g}") for value in values]

    return msgspec.structs.replace(series, x=short(series.x), y=short(series.y), low=short(series.low))
