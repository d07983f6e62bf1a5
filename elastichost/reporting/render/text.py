"""Texts of a run, before they are shown. Pure."""

from __future__ import annotations

import re

__all__ = ["cleaned"]

# Control characters, and characters that change the direction of text: they could hide or reorder the rest of a text.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def cleaned(text: str) -> str:
    """Replaces invisible and direction-changing characters by U+FFFD."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)
