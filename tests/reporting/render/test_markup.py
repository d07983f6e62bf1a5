"""Texts are escaped in HTML."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from elastichost.reporting.render.markup import Markup, cleaned, joined, tag


class Seen(HTMLParser):
    """The tags, attributes and text that a browser sees in a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(), st.text())
def test_texts_are_escaped(text: str, value: str) -> None:
    seen = Seen(tag("p", text, tag("b", "x"), text, title=value))
    assert seen.tags == ["p", "b"]
    assert seen.text == cleaned(text) + "x" + cleaned(text)
    assert seen.attributes == ([("title", cleaned(value))] if value else [])


def test_markup_is_not_escaped_again() -> None:
    assert joined("<", Markup("<br>"), tag("i", "&")) == "&lt;<br><i>&amp;</i>"
    assert tag("meta", name_="a", http_equiv="b") == '<meta name="a" http-equiv="b">'


def test_invisible_characters_are_replaced() -> None:
    assert cleaned("a\x00b\u202egnp.exe\ud800\tc\n") == "a\ufffdb\ufffdgnp.exe\ufffd\tc\n"
