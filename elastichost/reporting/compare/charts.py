"""The learning curves of several runs in one chart: over samples, and over running time. Pure."""

from __future__ import annotations

from elastichost.reporting.compare.facts import Comparison
from elastichost.reporting.render.chart import Chart, ChartAxis, ChartSeries, Values
from elastichost.reporting.render.palette import CYCLE
from elastichost.reporting.render.smoothed import MOST_POINTS, Point, smoothed

__all__ = ["curve_charts"]


def curve_charts(comparison: Comparison) -> tuple[Chart, ...]:
    """Two charts, or none if no run has a curve."""
    over_samples: list[ChartSeries] = []
    over_time: list[ChartSeries] = []
    for number, run in enumerate(comparison.runs):
        curve = run.curve
        if not any(curve.loss):
            continue
        colour = CYCLE[number % len(CYCLE)]
        is_dashed = number >= len(CYCLE)
        for series, places in ((over_samples, curve.samples), (over_time, curve.at_s)):
            x, y = smoothed(_points(places, curve.loss))
            series.append(ChartSeries(run.name, colour, x, y, is_dashed=is_dashed))
    if not over_samples:
        return ()
    loss_axis = ChartAxis("loss", "figure")
    about = f"Each point is the mean of a part of the curve, at most {MOST_POINTS} points for each run."
    return (
        Chart(
            name="loss-samples",
            title="Training loss over samples",
            x=ChartAxis("samples trained", "count", least=0.0),
            y=loss_axis,
            series=tuple(over_samples),
            about=about,
        ),
        Chart(
            name="loss-time",
            title="Training loss over running time",
            x=ChartAxis("running time", "moment", least=0.0),
            y=loss_axis,
            series=tuple(over_time),
        ),
    )


def _points(places: Values, losses: Values) -> list[Point]:
    return [(place, loss) for place, loss in zip(places, losses, strict=True) if place is not None and loss is not None]
