"""Renders templates, and whole documents with their scripts and styles.

The templates escape every text. `rendered` also replaces invisible characters, so that no template can forget it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from elastichost.human_readable import bytes_words, count_words, duration_words, plural
from elastichost.reporting.render.chart import Chart, chart_json
from elastichost.reporting.render.chart_table import chart_table, moment_words
from elastichost.reporting.render.palette import variables
from elastichost.reporting.render.text import cleaned

__all__ = ["LIVE_FILES", "DocumentParts", "PageSection", "document", "live_document", "rendered", "static_text"]

SCRIPTS = ("uPlot.iife.min.js", "chart_data.js", "charts.js")  # of every page
STYLES = ("uPlot.min.css", "page.css")
LIVE_SCRIPT = "live.js"
LIVE_FILES = frozenset({*SCRIPTS, *STYLES, LIVE_SCRIPT})  # what the server of a live page sends


class PageSection(msgspec.Struct, frozen=True):
    """A section of a page. anchor: its id."""

    anchor: str
    title: str
    content: Markup


class DocumentParts(msgspec.Struct, frozen=True):
    """What differs between pages. top, end: the content of the header and of the footer."""

    title: str
    top: Markup
    sections: Sequence[PageSection]
    end: Markup


def rendered(template: str, **content: object) -> Markup:
    """A template with its content."""
    return Markup(cleaned(_environment().get_template(template).render(**content)))


def document(parts: DocumentParts) -> str:
    """A document in one file, with its scripts and styles inside. It may run and apply exactly these, and load
    nothing."""
    scripts, styles = [static_text(name) for name in SCRIPTS], [static_text(name) for name in STYLES]
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return str(rendered("document.html", parts=parts, policy=policy, scripts=scripts, styles=styles, is_live=False))


def live_document(parts: DocumentParts) -> str:
    """The document of a page that its server keeps up to date. Its server also sends LIVE_FILES, and the policy."""
    names = [*SCRIPTS, LIVE_SCRIPT]
    return str(rendered("document.html", parts=parts, policy="", scripts=names, styles=STYLES, is_live=True))


@cache
def static_text(name: str) -> Markup:
    """A script or a style sheet. In style sheets, the colours of the page come first."""
    text = (files("elastichost.reporting") / "static" / name).read_text(encoding="utf-8")
    if name == "page.css":
        dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(night=True)} }} }}"
        text = f":root {{ {variables(night=False)} }}\n{dark}\n{text}"
    return Markup(text)


def _hashes(texts: Sequence[str]) -> str:
    """The sources of a content security policy that allow exactly these elements."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("elastichost.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "bytes_words": bytes_words,
        "count_words": lambda count: count_words(round(count)),
        "duration_words": duration_words,
        "moment_words": moment_words,
        "plural": plural,
        "percent": lambda place: f"{place:.3g}%",
        "chart_json": _chart_json,
        "chart_table": chart_table,
    }
    return made


def _chart_json(chart: Chart) -> Markup:
    return Markup(chart_json(chart))
