"""The table below a chart: the same data as text, for readers who do not see the chart. Pure."""

from __future__ import annotations

import msgspec

from elastichost.human_readable import bytes_words, count_words
from elastichost.reporting.render.chart import Chart, ChartSeries, Unit

__all__ = ["ChartTable", "SeriesRow", "chart_table", "moment_words", "unit_words"]

MOST_PAIRS = 24  # points of a series; if there are more, only the ends and the extremes are told
MOST_NOTES = 60


class SeriesRow(msgspec.Struct, frozen=True):
    """A series in words. least, greatest: with the place where they are. pairs: all (x, y) of a series with few."""

    name: str
    count: int
    first: str
    last: str
    least: str
    greatest: str
    pairs: tuple[tuple[str, str], ...] = ()


class ChartTable(msgspec.Struct, frozen=True):
    """notes: (place, text) of the marks, spans and single points. left_out: notes that are not in the list."""

    rows: tuple[SeriesRow, ...]
    notes: tuple[tuple[str, str], ...]
    left_out: int = 0


def moment_words(at_s: float) -> str:
    """A moment of running time: 75 -> "1:15", 3675 -> "1:01:15", 7.25 -> "0:07.2"."""
    if at_s < 60:
        return f"0:{int(at_s * 10) / 10:04.1f}"
    minutes, seconds = divmod(int(at_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def unit_words(value: float, unit: Unit) -> str:
    match unit:
        case "moment":
            return moment_words(value)
        case "bytes":
            return bytes_words(round(value))
        case "percent":
            return f"{value:.0f}%"
        case "share":
            return f"{value:.1%}"
        case "rate":
            return f"{count_words(round(value))} samples/s"
        case "count":
            return count_words(round(value)) if abs(value) >= 100 or value == int(value) else f"{value:.2f}"
        case "figure":
            return f"{value:.4f}"


def chart_table(chart: Chart) -> ChartTable:
    """The chart in words."""
    notes = sorted(
        [(one.begin, one.tip) for one in chart.spans]
        + [(one.x, f"{one.name} {one.label}: {one.tip}" if one.label else one.tip) for one in chart.marks]
        + [(one.x, one.tip) for one in chart.points]
    )
    kept = tuple((unit_words(x, chart.x.unit), text) for x, text in notes[:MOST_NOTES])
    return ChartTable(tuple(_row(one, chart) for one in chart.series), kept, len(notes) - len(kept))


def _row(series: ChartSeries, chart: Chart) -> SeriesRow:
    known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if x is not None and y is not None]
    if not known:
        return SeriesRow(series.name, 0, "", "", "", "")

    def told(value: float) -> str:
        return unit_words(value, chart.y.unit)

    def place(value: float) -> str:
        return unit_words(value, chart.x.unit)

    least, greatest = min(known, key=lambda one: one[1]), max(known, key=lambda one: one[1])
    return SeriesRow(
        series.name,
        len(known),
        told(known[0][1]),
        told(known[-1][1]),
        f"{told(least[1])} at {place(least[0])}",
        f"{told(greatest[1])} at {place(greatest[0])}",
        tuple((place(x), told(y)) for x, y in known) if len(known) <= MOST_PAIRS else (),
    )
