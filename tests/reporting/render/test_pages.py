"""Templates, documents and their content security policy."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup

from elastichost.reporting.render.pages import (
    LIVE_FILES,
    DocumentParts,
    PageSection,
    document,
    live_document,
    rendered,
    static_text,
)
from elastichost.reporting.render.text import cleaned
from tests.reporting.render.seen import Seen
from tests.reporting.render.test_chart import HOSTILE

SECTION = PageSection("one", HOSTILE, Markup("<p>content</p>"))
PARTS = DocumentParts(HOSTILE, Markup("<h1>top</h1>"), (SECTION,), Markup())


@given(st.text())
def test_texts_are_escaped(text: str) -> None:
    seen = Seen(rendered("host/measured.html", words=f"-{text}", chart=None, without=""))
    assert seen.tags == ["p", "p"]
    assert cleaned(f"-{text}").replace("\r", "\ufffd") in seen.text


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        rendered("host/measured.html", words="")


def test_a_document_may_run_exactly_its_own_scripts() -> None:
    seen = Seen(document(PARTS))
    (policy,) = [value or "" for value in seen.values_of("content") if "default-src" in (value or "")]
    allowed = {part for part in policy.replace(";", " ").split() if part.startswith("'sha256-")}
    texts = [*seen.scripts, *seen.styles]
    assert allowed == {
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts
    }
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert seen.tags.count("script") == len(seen.scripts) == 3


def test_a_live_document_names_only_what_its_server_sends() -> None:
    seen = Seen(live_document(PARTS))
    files = {value for value in [*seen.values_of("src"), *seen.values_of("href")] if value and value.startswith("/")}
    assert files == {f"/static/{name}" for name in LIVE_FILES}
    assert not seen.scripts and not seen.styles


def test_titles_are_escaped_in_a_document() -> None:
    page = document(PARTS)
    assert "alert" not in "".join(Seen(page).scripts)
    assert "\u202e" not in page and "\x07" not in page


def test_every_colour_has_two_modes() -> None:
    style = static_text("page.css")
    used = {part.partition(")")[0] for part in style.split("var(--")[1:]}
    assert {"ink", "paper", "blue"} <= used
    for name in used - {"serif", "sans"}:
        assert style.count(f"--{name}:") == 2, name


def test_uplot_is_that_of_the_licence() -> None:
    assert "uPlot (v1.6.32)" in static_text("uPlot.iife.min.js")
    assert "MIT" in static_text("uPlot.LICENSE")
