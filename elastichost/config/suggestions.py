"""What a misspelt word probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or nothing when no known word is close."""
    words = list(known)
    by_lower = {one.lower(): one for one in words}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    if not close:
        # "bacth" is far from "batch_size", but not from its first part
        by_lower = {part: one for one in reversed(words) for part in one.lower().split("_") if len(part) > 2}
        close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.75)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""
