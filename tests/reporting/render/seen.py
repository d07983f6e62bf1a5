"""What a browser sees in a page."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

__all__ = ["Seen"]


class Seen(HTMLParser):
    """The tags, attributes, text and charts of a page. scripts: texts of the elements that run. styles: texts of the
    style elements. charts: the data of each chart by its name."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.charts: dict[str, Any] = {}
        self._place = ""
        self.feed(str(page))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._place = "chart" if tag == "script" and ("type", "application/json") in attrs else tag
        if tag == "script" and self._place != "chart" and not dict(attrs).get("src"):
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._place = ""

    def handle_data(self, data: str) -> None:
        match self._place:
            case "chart":
                chart = json.loads(data)
                self.charts[chart["name"]] = chart
            case "script":
                self.scripts[-1] += data
            case "style":
                self.styles.append(data)
            case _:
                self.text += data

    def values_of(self, name: str) -> list[str | None]:
        """The values of all attributes with this name."""
        return [value for key, value in self.attributes if key == name]
