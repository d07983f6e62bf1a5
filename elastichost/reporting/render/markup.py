"""Builds HTML. Every text that is not Markup is escaped, so that texts of a run cannot inject HTML. Pure."""

from __future__ import annotations

import html
import re

__all__ = ["Markup", "cleaned", "joined", "tag"]

VOID = frozenset({"meta", "br"})
# Control characters, and characters that change the direction of text: they could hide or reorder the rest of a text.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """HTML that is inserted into a page without escaping."""

    __slots__ = ()


def cleaned(text: str) -> str:
    """Replaces invisible and direction-changing characters by U+FFFD."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(child: str) -> str:
    return child if isinstance(child, Markup) else html.escape(cleaned(child), quote=False)


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """Builds an element. A child that is not Markup is escaped. The attribute `class_` becomes class, `aria_label`
    becomes aria-label; empty attributes are left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(cleaned(value))}"'
        for key, value in attributes.items()
        if value
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(map(_escaped, children))}</{name}>")


def joined(*parts: str) -> Markup:
    """Concatenates parts; a part that is not Markup is escaped."""
    return Markup("".join(map(_escaped, parts)))
