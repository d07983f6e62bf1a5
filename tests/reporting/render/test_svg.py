"""Figures as SVG elements of a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator

import pytest

from elastichost.reporting.render.svg import Drawing, drawing_style, new_figure, svg_of, time_scale
from elastichost.reporting.run.facts import Report
from elastichost.reporting.run.view.figures import (
    heat_figure,
    learning_figure,
    memory_figure,
    plan_figure,
    process_figure,
    throughput_figure,
)
from elastichost.reporting.run.view.model_figures import candidates_figure, model_figure

ALL = (
    throughput_figure,
    learning_figure,
    plan_figure,
    process_figure,
    model_figure,
    candidates_figure,
    memory_figure,
    heat_figure,
)
HOSTILE = '</title><script>alert("1")</script> $x_{$ \x07 &'


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with drawing_style():
        yield


def parsed(drawing: Drawing | None) -> ET.Element:
    """The SVG element of a figure."""
    assert drawing is not None
    return ET.fromstring(svg_of(drawing))


@pytest.mark.parametrize("make", ALL)
def test_a_figure_has_the_pages_colours_and_fonts_only(make: Callable[[Report], Drawing | None], full: Report) -> None:
    drawing = make(full)
    assert drawing is not None
    svg = svg_of(drawing)
    assert not re.findall(r"#[0-9a-fA-F]{3,6}\b(?=[;\"])", re.sub(r'(href="|url\()#[^")]*', "", svg))
    assert "var(--" in svg
    assert "font-family" not in svg
    assert "<script" not in svg
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert parsed(drawing).get("aria-label") == drawing.label


@pytest.mark.parametrize("make", ALL)
def test_a_figure_is_the_same_each_time(make: Callable[[Report], Drawing | None], full: Report) -> None:
    first, second = make(full), make(full)
    assert first is not None
    assert second is not None
    assert svg_of(first) == svg_of(second)


def test_ids_of_all_figures_are_different_and_referred_to(full: Report) -> None:
    roots = [parsed(make(full)) for make in ALL]
    ids = [element.get("id") for root in roots for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    referred = set()
    for element in (element for root in roots for element in root.iter()):
        for key, value in element.attrib.items():
            referred.update(re.findall(r"url\(#([^)]+)\)", value))
            if key == "href":
                referred.add(value.removeprefix("#"))
    assert referred == set(ids)


def test_marks_have_tooltips(full: Report) -> None:
    titles = [one.text or "" for one in parsed(throughput_figure(full)).iter("{http://www.w3.org/2000/svg}title")]
    assert "2: 3 workers, 2 PS: try 3 workers" in titles
    written = "checkpoint step-400 written: 500 rows, 1.0 MiB in 1.00 s; training was paused for 0.10 s"
    assert f"checkpoint, 1.0 s: {written}" in titles
    assert "evaluation, 2.0 s: evaluation finished: the best so far; 100 samples scored in 0.4 s" in titles
    assert "worker-0.1 exited in state running: signal 9" in titles


def test_hostile_text_is_escaped() -> None:
    figure, (axes,) = new_figure(2.0)
    axes.plot([0, 1], [0, 1], gid="mark", label=HOSTILE.replace("\x07", ""))
    axes.legend()
    root = ET.fromstring(svg_of(Drawing("hostile", figure, HOSTILE, {"mark": HOSTILE})))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert "script" not in tags
    (title,) = root.iter("{http://www.w3.org/2000/svg}title")
    assert title.text == HOSTILE.replace("\x07", "\ufffd")


@pytest.mark.parametrize(
    ("total_s", "unit"), [(0.0, "seconds"), (299.0, "seconds"), (3600.0, "minutes"), (86400.0, "hours")]
)
def test_times_have_a_unit_that_fits(total_s: float, unit: str) -> None:
    assert time_scale(total_s).unit == unit
