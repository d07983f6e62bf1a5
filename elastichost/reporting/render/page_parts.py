"""Parts of a page: tables, figures with captions, the list of gaps, the document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from elastichost.reporting.render.markup import Markup, joined, tag
from elastichost.reporting.render.page_style import style_sheet
from elastichost.reporting.render.svg import Drawing, drawing_style, svg_of

__all__ = ["Column", "Section", "details", "document", "drawn", "framed", "gap_list", "row_of", "table_of"]

Column = tuple[str, Literal["", "number", "short", "words"]]  # heading, CSS class of the cells
Section = tuple[str, str, Markup]  # anchor, title, content
# The browser fetches nothing and runs no script, even if a text of the journal asks for it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def table_of(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Markup:
    return framed(columns, (row_of(columns, row) for row in rows))


def row_of(columns: Sequence[Column], cells: Sequence[str], kind: str = "") -> Markup:
    pairs = zip(columns, cells, strict=True)
    return tag("tr", *(tag("td", cell, class_=setting) for (_, setting), cell in pairs), class_=kind)


def framed(columns: Sequence[Column], body: Iterable[Markup]) -> Markup:
    head = tag("tr", *(tag("th", name, class_=setting) for name, setting in columns))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll")


def drawn(make: Callable[[], Drawing | None], caption: str, without: str) -> Markup:
    """The figure with its caption; if `make` returns None, the sentence `without` instead."""
    with drawing_style():
        drawing = make()
        if drawing is None:
            return tag("p", without, class_="quiet")
        return tag("figure", svg_of(drawing), tag("figcaption", caption))


def details(title: str, content: Markup) -> Markup:
    return tag("details", tag("summary", title), content)


def gap_list(gaps: Sequence[tuple[str, str]]) -> Markup:
    """The list of gaps as (source, problem); empty markup if there are none."""
    if not gaps:
        return Markup()
    listed = tag("ul", *(tag("li", tag("code", source), f": {text}") for source, text in gaps))
    return tag("aside", tag("p", "This report is incomplete:"), listed)


def document(
    title: str,
    header: Markup,
    sections: Sequence[Section],
    footer: Markup,
    *,
    policy: str = POLICY,
    script: Markup = Markup(),  # noqa: B008 - it is immutable
) -> str:
    """A whole HTML document. policy: its content security policy. script: its script element; empty: it has none. The
    content of a section has the section's anchor, with "-part", as its id."""
    links = [joined(tag("a", name, href=f"#{anchor}"), " ") for anchor, name, _ in sections]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("title", title),
        tag("style", style_sheet()),
        script,
    )
    body = tag(
        "body",
        header,
        tag("nav", *links),
        *(
            tag("section", tag("h2", name), tag("div", content, id_=f"{anchor}-part"), id_=anchor)
            for anchor, name, content in sections
        ),
        footer,
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"
