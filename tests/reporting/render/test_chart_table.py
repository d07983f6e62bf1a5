"""The table below a chart."""

from __future__ import annotations

import pytest

from elastichost.reporting.render.chart import ChartSeries, Unit
from elastichost.reporting.render.chart_table import MOST_PAIRS, chart_table, moment_words, unit_words
from tests.reporting.render.test_chart import chart


def test_a_series_is_told_by_its_ends_and_extremes() -> None:
    series = ChartSeries("rows", "blue", (0.0, 30.0, 90.0), (1024.0, 4096.0, 2048.0))
    (row,) = chart_table(chart(series=series)).rows
    assert (row.name, row.count, row.first, row.last) == ("rows", 3, "1.0 KiB", "2.0 KiB")
    assert (row.least, row.greatest) == ("1.0 KiB at 0:00.0", "4.0 KiB at 0:30.0")
    assert row.pairs == (("0:00.0", "1.0 KiB"), ("0:30.0", "4.0 KiB"), ("1:30", "2.0 KiB"))


def test_points_are_listed_only_if_they_are_few() -> None:
    places = [float(at) for at in range(MOST_PAIRS + 1)]
    (row,) = chart_table(chart(series=ChartSeries("s", "blue", places, places))).rows
    assert row.pairs == ()


def test_what_was_not_measured_is_not_zero() -> None:
    (row,) = chart_table(chart(series=ChartSeries("s", "blue", (0.0, 1.0), (None, None)))).rows
    assert (row.count, row.first, row.least) == (0, "", "")


def test_tips_are_told_in_order() -> None:
    assert chart_table(chart("tip")).notes == (("0:00.0", "tip"), ("0:00.5", "tip"), ("0:00.5", "tip 1: tip"))


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (75.0, "moment", "1:15"),
        (3.5, "count", "3.50"),
        (4.0, "count", "4"),
        (123456.0, "count", "123.5k"),
        (149_949.6, "rate", "149.9k samples/s"),
        (3 << 30, "bytes", "3.0 GiB"),
        (49.6, "percent", "50%"),
        (0.125, "share", "12.5%"),
        (0.75176, "figure", "0.7518"),
    ],
)
def test_values_have_the_words_of_their_unit(value: float, unit: Unit, told: str) -> None:
    assert unit_words(value, unit) == told


@pytest.mark.parametrize(("at_s", "told"), [(7.25, "0:07.2"), (75.0, "1:15"), (3675.0, "1:01:15")])
def test_moments(at_s: float, told: str) -> None:
    assert moment_words(at_s) == told
