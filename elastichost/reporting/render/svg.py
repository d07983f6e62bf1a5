"""Renders figures as inline SVG with the fonts and colours of the page, tooltips, and labels for screen readers."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from elastichost.reporting.render.markup import Markup, cleaned
from elastichost.reporting.render.palette import CYCLE, LINES, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Drawing", "TimeScale", "drawing_style", "new_figure", "svg_of", "time_scale"]

WIDTH_IN = 7.4
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 0.82, 0.16, 0.26, 0.42  # margins
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_VARIABLES = {colour.day: f"var(--{colour.name})" for colour in PALETTE}
_HEX = re.compile(r"#[0-9a-fA-F]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched and copied, and uses the page's font
    "text.parse_math": False,
    "font.size": 9.0,
    "font.family": "sans-serif",
    "axes.titlesize": 9.0,
    "axes.labelsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.4,
    "legend.handletextpad": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.linewidth": 0.5,
    "grid.color": LINES.rule,
    "axes.edgecolor": LINES.muted,
    "axes.labelcolor": LINES.muted,
    "xtick.color": LINES.muted,
    "ytick.color": LINES.muted,
    "xtick.major.width": 0.7,
    "ytick.major.size": 0.0,
    "text.color": LINES.ink,
    "legend.labelcolor": LINES.ink,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "path.simplify_threshold": 0.3,
}


class Drawing(msgspec.Struct, frozen=True):
    """A figure. name: letters, unique in the page. label: description for screen readers. tips: tooltips by the gid of
    their artist."""

    name: str
    figure: Any  # matplotlib.figure.Figure; matplotlib is loaded only when a figure is drawn
    label: str
    tips: Mapping[str, str] = {}


@contextmanager
def drawing_style() -> Iterator[None]:
    """The matplotlib style in which figures are made and rendered."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=CYCLE)}):
        yield


def new_figure(
    height_in: float, rows: int = 1, left_in: float = LEFT_IN, **settings: Any
) -> tuple[Figure, Sequence[Axes]]:
    """A figure with `rows` axes one above the other, without a window and without pyplot's global state. All figures
    have the same margins, so that their time axes line up on the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in))
    margins = {"left": left_in / WIDTH_IN, "right": 1 - RIGHT_IN / WIDTH_IN}
    heights = {"bottom": BOTTOM_IN / height_in, "top": 1 - TOP_IN / height_in, "hspace": 0.28}
    axes = figure.subplots(rows, 1, squeeze=False, gridspec_kw={**margins, **heights}, **settings)
    return figure, [row[0] for row in axes]


class TimeScale(msgspec.Struct, frozen=True):
    """A unit of time: its length in seconds, and its name."""

    seconds: float
    unit: str


def time_scale(total_s: float) -> TimeScale:
    """The unit for an axis of `total_s` seconds."""
    if total_s < 300:
        return TimeScale(1.0, "seconds")
    return TimeScale(60.0, "minutes") if total_s < 3 * 3600 else TimeScale(3600.0, "hours")


def svg_of(drawing: Drawing) -> Markup:
    """Renders the figure as an SVG element that uses the page's colours and font. Call it within `drawing_style`."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": drawing.name}):
        drawing.figure.savefig(
            file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    root = ET.fromstring(file.getvalue())  # written by matplotlib, so that it is safe to parse
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    _tell(root, drawing.tips)
    _make_ids_unique(root, drawing.name)
    for element in root.iter():
        _paint(element)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("role", "img")
    root.set("aria-label", cleaned(drawing.label))
    ET.register_namespace("", SVG)
    return Markup(ET.tostring(root, encoding="unicode"))


def _tell(root: ET.Element, tips: Mapping[str, str]) -> None:
    for element in root.iter():
        text = tips.get(element.get("id", ""))
        if text is not None:
            title = ET.Element(f"{{{SVG}}}title")
            title.text = cleaned(text)
            element.insert(0, title)
            element.set("class", "tip")


def _make_ids_unique(root: ET.Element, name: str) -> None:
    """Removes unused ids, and prefixes the others with the figure's name, because a page has several figures."""
    used: set[str] = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            used.update(_REFERENCE.findall(value))
            if key in (f"{{{XLINK}}}href", "href"):
                used.add(value.removeprefix("#"))
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in used:
            element.set("id", f"{name}-{own}")
        reference = element.attrib.pop(f"{{{XLINK}}}href", None)
        if reference is not None:
            element.set("href", f"#{name}-{reference.removeprefix('#')}")
        for key, value in element.attrib.items():
            if "url(#" in value:
                element.set(key, _REFERENCE.sub(rf"url(#{name}-\1)", value))


def _paint(element: ET.Element) -> None:
    """Replaces day colours by CSS variables. Attributes that hold a colour become styles, which allow variables."""
    style = element.get("style", "")
    for key in ("fill", "stroke"):
        value = element.get(key, "")
        if value.lower() in _VARIABLES:
            del element.attrib[key]
            style = f"{key}: {value}; {style}"
    if style:
        style = _HEX.sub(lambda found: _VARIABLES.get(found[0].lower(), found[0]), style)
        element.set("style", re.sub(r"font(-family)?:[^;]*;?\s*", _sized, style))


def _sized(found: re.Match[str]) -> str:
    """Keeps only the size of a font; the page sets its family."""
    if found[1]:
        return ""
    size = re.search(r"([\d.]+)px", found[0])
    return f"font-size: {size[1]}px; " if size else ""
