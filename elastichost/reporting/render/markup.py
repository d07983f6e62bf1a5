"""HTML by construction: what is not markup already is escaped, whatever a run says of itself. Pure."""

from __future__ import annotations

import html
import re

__all__ = ["Markup", "cleaned", "joined", "tag"]

VOID = frozenset({"meta", "br"})
# Controls, and characters that turn the direction of what follows: nothing that was written may hide or move the rest.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """HTML that may stand in a page as it is."""

    __slots__ = ()


def cleaned(text: str) -> str:
    """Without characters that are not seen."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _escaped(child: str) -> str:
    return child if isinstance(child, Markup) else html.escape(cleaned(child), quote=False)


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """An element. Children that are no Markup are text. Attributes: `class_` is class, `aria_label` aria-label; empty
    ones are left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(cleaned(value))}"'
        for key, value in attributes.items()
        if value
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(map(_escaped, children))}</{name}>")


def joined(*parts: str) -> Markup:
    """One after the other."""
    return Markup("".join(map(_escaped, parts)))
