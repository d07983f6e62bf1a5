"""Charts as data in a page."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from elastichost.reporting.render.chart import (
    Chart,
    ChartAxis,
    ChartMark,
    ChartPoint,
    ChartSeries,
    ChartSpan,
    chart_json,
    line_of,
)
from elastichost.reporting.render.text import cleaned

HOSTILE = '</script><script>alert("1")</script><!-- \x07\u202e &'


def chart(text: str = "text", series: ChartSeries | None = None) -> Chart:
    return Chart(
        name="one",
        title=text,
        x=ChartAxis("seconds", "moment"),
        y=ChartAxis("bytes", "bytes", least=0.0),
        series=(series or ChartSeries(text, "blue", (0.0, 1.0), (1.0, None)),),
        spans=(ChartSpan(text, "ochre", 0.0, 1.0, text),),
        marks=(ChartMark(text, 0.5, text, "1"),),
        points=(ChartPoint(text, "red", 0.5, None, text),),
    )


@given(st.text())
def test_any_text_comes_back_without_invisible_characters(text: str) -> None:
    content = json.loads(chart_json(chart(text)))
    told = cleaned(text)
    assert (content["title"], content["series"][0]["name"]) == (told, told)
    assert (content["spans"][0]["tip"], content["marks"][0]["tip"], content["points"][0]["tip"]) == (told,) * 3


def test_no_text_ends_the_script_element_or_opens_a_comment() -> None:
    written = chart_json(chart(HOSTILE))
    assert "<" not in written and ">" not in written
    assert "\x07" not in written and "\\u0007" not in written and "\u202e" not in written


def test_numbers_are_rounded_and_gaps_stay() -> None:
    series = ChartSeries("s", "blue", (1.0, 2.0, 3.0), (1 / 3, None, float("nan")))
    (written,) = json.loads(chart_json(chart(series=series)))["series"]
    assert written["y"] == [0.3333333, None, None]


def test_a_break_in_a_course_is_a_gap_between_its_neighbours() -> None:
    line = line_of("s", "blue", (0.0, 1.0, None, 3.0, None), (5.0, 6.0, None, 7.0, None))
    assert list(line.x) == [0.0, 1.0, 2.0, 3.0]
    assert list(line.y) == [5.0, 6.0, None, 7.0]
