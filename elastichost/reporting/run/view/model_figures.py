"""Figures that compare the tuner's model with the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elastichost.reporting.render.axes import Style, count_format, count_ticks, legend_above
from elastichost.reporting.render.palette import LINES
from elastichost.reporting.render.svg import Drawing, new_figure
from elastichost.reporting.run.facts import MeasuredConfiguration, Report
from elastichost.reporting.run.view.words import speed_words
from elastichost.tuner.policy.policy import SpeedForecast

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["candidates_figure", "model_figure"]

MOST_ROWS = 24  # configurations; if there are more, the fastest ones
ROW_IN = 0.34
MOST_EVENLY = 60  # candidates; if there are more, a log axis gives the fastest ones most of the room


def model_figure(report: Report) -> Drawing | None:
    """One row for each measured configuration, with forecast, measurement and fit. None: nothing was measured."""
    model = report.model
    if model is None or not model.measured:
        return None
    rows = model.measured[:MOST_ROWS]
    figure, (axes,) = new_figure(0.75 + ROW_IN * len(rows), left_in=1.75)
    tips: dict[str, str] = {}
    for row, one in enumerate(rows):
        tips |= _row(axes, row, one)
    axes.set_yticks(range(len(rows)), [_name(one) for one in rows], color=LINES.ink)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", linewidth=0.5)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("samples/s")
    axes.set_xlim(*_span(rows))
    count_ticks(axes.xaxis, 8)
    legend_above(axes)
    label = "Measured and predicted speed of each configuration, with 90 percent intervals"
    return Drawing("model", figure, label, tips)


def _name(one: MeasuredConfiguration) -> str:
    return f"{one.configuration}{' *' if one.is_forgotten else ''}"


def _row(axes: Axes, row: int, one: MeasuredConfiguration) -> dict[str, str]:
    """Draws one row; from top to bottom: the forecast, the measurement, the fit. Returns the tooltips."""
    tips: dict[str, str] = {}
    marks: tuple[tuple[str, SpeedForecast | None, str, str, float, Style], ...] = (
        ("forecast", one.before, "D", LINES.before, -0.24, {"markerfacecolor": LINES.paper}),
        ("measured", one.measured, "o", LINES.measured, 0.0, {}),
        ("fitted model", one.fitted, "s", LINES.fitted, 0.24, {}),
    )
    for number, (name, told, marker, colour, aside, more) in enumerate(marks):
        if told is None:
            continue
        gid = f"mark-{row}-{number}"
        known = {text.get_label() for text in axes.lines}
        label = f"_{name}" if name in known else name
        axes.plot([told.low, told.high], [row + aside] * 2, color=colour, linewidth=1.0, alpha=0.75)
        line: Style = {"linestyle": "none", "markersize": 4.6, "markeredgewidth": 1.1}
        axes.plot([told.samples_per_s], [row + aside], marker, color=colour, label=label, gid=gid, **line, **more)
        tips[gid] = f"{one.configuration}, {name}: {speed_words(told)}"
    return tips


def _span(rows: Sequence[MeasuredConfiguration]) -> tuple[float, float]:
    """The range of the axis: from zero to a little above the largest value; very wide intervals are cut off."""
    told = [one for row in rows for one in (row.measured, row.before, row.fitted) if one is not None]
    centre = max(one.samples_per_s for one in told)
    return 0.0, 1.04 * min(max(one.high for one in told), 2.0 * centre)


def candidates_figure(report: Report) -> Drawing | None:
    """All candidates by predicted speed, with the measured ones among them. None: nothing was predicted."""
    from matplotlib.ticker import MaxNLocator

    model = report.model
    if model is None or not model.candidates:
        return None
    figure, (axes,) = new_figure(2.7)
    ranks, told = list(model.candidate_ranks), model.candidates
    low, high = [one.low for one in told], [one.high for one in told]
    axes.fill_between(ranks, low, high, color=LINES.fitted, alpha=0.18, linewidth=0, label="90 % interval")
    speeds = [one.samples_per_s for one in told]
    axes.plot(ranks, speeds, color=LINES.fitted, linewidth=1.2, label="predicted")
    outside = [(rank, one.samples_per_s) for rank, one in zip(ranks, told, strict=True) if one.is_extrapolated]
    if outside:
        points: Style = {"color": LINES.fitted, "markersize": 3.2, "markerfacecolor": LINES.paper, "linestyle": "none"}
        axes.plot(*zip(*outside, strict=True), "o", label="extrapolated", **points)
    tips = _measured_points(axes, report)
    top = max(*speeds, *(one.measured.samples_per_s for one in model.measured))
    axes.set_ylim(0, 1.06 * min(max(high), 2.0 * top))
    axes.set_ylabel("samples/s")
    count_ticks(axes.yaxis)
    if model.candidates_total > MOST_EVENLY:
        axes.set_xscale("log")
        count_format(axes.xaxis)
        axes.set_xlim(0.9, model.candidates_total)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.set_xlim(0.5, model.candidates_total + 0.5)
    axes.set_xlabel(f"rank among the {model.candidates_total:,} allowed configurations, fastest first")
    legend_above(axes)
    return Drawing(
        "candidates", figure, "Predicted speed of all configurations, and the measured ones among them", tips
    )


def _measured_points(axes: Axes, report: Report) -> dict[str, str]:
    model = report.model
    assert model is not None
    rank_of = {one.configuration: rank for one, rank in zip(model.candidates, model.candidate_ranks, strict=True)}
    tips: dict[str, str] = {}
    for number, one in enumerate(model.measured):
        rank = rank_of.get(one.configuration)
        if rank is None or one.is_forgotten:
            continue
        gid, label = f"point-{number}", "_measured" if tips else "measured"
        place: Style = {"linestyle": "none", "markersize": 4.6, "gid": gid, "label": label, "zorder": 4}
        axes.plot([rank], [one.measured.samples_per_s], "o", color=LINES.measured, **place)
        tips[gid] = f"{one.configuration}, measured: {speed_words(one.measured)}"
    return tips
