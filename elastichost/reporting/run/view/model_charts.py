"""What compares the tuner's model with the measurements: a row for each configuration, and the ranking of all. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elastichost.human_readable import count_words
from elastichost.reporting.render.bars import Bar, BarRow, BarTable, ticks_of
from elastichost.reporting.render.chart import Chart, ChartAxis, ChartPoint, ChartSeries
from elastichost.reporting.run.facts import MeasuredConfiguration, Report, TunerModelFacts
from elastichost.reporting.run.view.words import speed_words
from elastichost.tuner.policy.policy import SpeedForecast

__all__ = ["candidates_chart", "measured_bars"]

MOST_ROWS = 24  # configurations; if there are more, the fastest ones
MOST_EVENLY = 60  # candidates; if there are more, a log axis gives the fastest ones most of the room
KEY = (("fill-ochre", "forecast before"), ("fill-ink", "measured"), ("fill-blue", "fitted model"))
LINE_PX, STRIP_PX = 9.0, 32


def measured_bars(report: Report) -> BarTable | None:
    """One row for each measured configuration: forecast, measurement and fit. None: nothing was measured."""
    model = report.model
    if model is None or not model.measured:
        return None
    rows = model.measured[:MOST_ROWS]
    most = _most(rows)
    ticks = tuple((tick.left, count_words(round(tick.at)).replace(".0", "")) for tick in ticks_of(most))
    return BarTable(
        "Measured and predicted speed of each configuration, with 90 % intervals",
        "configuration",
        "measured",
        tuple(_row(one, most) for one in rows),
        ticks,
        "samples/s",
        KEY,
        STRIP_PX,
    )


def _row(one: MeasuredConfiguration, most: float) -> BarRow:
    told = [
        (kind, name, speed) for (kind, name), speed in zip(KEY, (one.before, one.measured, one.fitted), strict=True)
    ]
    bars = tuple(
        _bar(speed, kind, name, number, most) for number, (kind, name, speed) in enumerate(told) if speed is not None
    )
    words = "; ".join(f"{name} {speed_words(speed)}" for _, name, speed in told if speed is not None)
    name = f"{one.configuration}{' *' if one.is_forgotten else ''}"
    return BarRow(name, bars, count_words(round(one.measured.samples_per_s)), words)


def _bar(speed: SpeedForecast, kind: str, name: str, number: int, most: float) -> Bar:
    low, high = 100 * max(0.0, speed.low) / most, 100 * min(most, speed.high) / most
    dot = 100 * min(most, speed.samples_per_s) / most
    return Bar(low, max(high - low, 0.0), 2 + number * LINE_PX, LINE_PX, kind, f"{name}: {speed_words(speed)}", dot)


def _most(rows: Sequence[MeasuredConfiguration]) -> float:
    """The end of the axis: a little above the largest value; very wide intervals are cut off."""
    told = [one for row in rows for one in (row.measured, row.before, row.fitted) if one is not None]
    centre = max(one.samples_per_s for one in told)
    return max(1.04 * min(max(one.high for one in told), 2.0 * centre), 1.0)


def candidates_chart(report: Report) -> Chart | None:
    """All candidates by predicted speed, with the measured ones among them. None: nothing was predicted."""
    model = report.model
    if model is None or not model.candidates:
        return None
    ranks, told = [float(rank) for rank in model.candidate_ranks], model.candidates
    speeds, high = [one.samples_per_s for one in told], [one.high for one in told]
    top = max(*speeds, *(one.measured.samples_per_s for one in model.measured))
    outside = [(rank, one.samples_per_s) for rank, one in zip(ranks, told, strict=True) if one.is_extrapolated]
    series = [
        ChartSeries("90 % interval", "blue", ranks, high, "band", [one.low for one in told]),
        ChartSeries("predicted", "blue", ranks, speeds),
    ]
    if outside:
        series.append(
            ChartSeries(
                "extrapolated", "violet", [rank for rank, _ in outside], [rate for _, rate in outside], "points"
            )
        )
    is_log = model.candidates_total > MOST_EVENLY
    return Chart(
        name="candidates",
        title="Predicted speed of all allowed configurations, samples per second",
        x=ChartAxis(
            f"rank among {model.candidates_total:,} configurations, fastest first",
            "count",
            "log" if is_log else "linear",
            least=0.9 if is_log else 0.5,
            most=model.candidates_total + 0.5,
        ),
        y=ChartAxis("samples per second", "rate", least=0.0, most=1.06 * min(max(high), 2.0 * top)),
        series=tuple(series),
        points=tuple(_measured_points(model)),
        about="Extrapolated: no similar configuration was measured, and the history has no similar job.",
    )


def _measured_points(model: TunerModelFacts) -> Iterator[ChartPoint]:
    rank_of = {one.configuration: rank for one, rank in zip(model.candidates, model.candidate_ranks, strict=True)}
    for one in model.measured:
        rank = rank_of.get(one.configuration)
        if rank is not None and not one.is_forgotten:
            tip = f"{one.configuration}, measured: {speed_words(one.measured)}"
            yield ChartPoint("measured", "ink", float(rank), one.measured.samples_per_s, tip)
