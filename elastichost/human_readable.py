"""Text for people: counts, sizes and durations (`--json` has the exact numbers), and suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["bytes_words", "count_words", "did_you_mean", "duration_words", "mib", "plural"]


def count_words(count: int) -> str:
    """12 345 678 -> "12.3M". Numbers below ten thousand are written in full."""
    if abs(count) < 10_000:
        return str(count)
    scaled = float(count)
    for unit in ("", "k", "M", "G"):
        # 999 950 would be shown as 1000.0k, so the rounded number decides on the unit
        if abs(scaled) < 999.95:
            return f"{scaled:.1f}{unit}"
        scaled /= 1000
    return f"{scaled:.1f}T"


def bytes_words(size_bytes: float) -> str:
    """3 221 225 472 -> "3.0 GiB"."""
    scaled = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(scaled) < 1023.95:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    return f"{scaled:.1f} TiB"


def duration_words(duration_s: float) -> str:
    """0.4 -> "0.4s", 75 -> "1m15s", 4000 -> "1h06m"."""
    if duration_s < 10:
        return f"{max(duration_s, 0.0):.1f}s"
    seconds = round(duration_s)
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m"


def mib(size_bytes: float) -> str:
    """3 250 586 -> "3.1 MiB". Always in MiB, so that sizes can be compared with each other."""
    return f"{size_bytes / (1 << 20):,.1f} MiB"


def plural(count: int, word: str) -> str:
    """3, "bucket" -> "3 buckets"."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`; did you mean "x"?` for the known word that is most similar; "" when none is similar. prefix: stands before the
    word in the text only."""
    words = list(known)
    by_lower = {one.lower(): one for one in words}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    if not close:
        # "bacth" is far from "batch_size", but not from its first part
        by_lower = {part: one for one in reversed(words) for part in one.lower().split("_") if len(part) > 2}
        close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.75)
    return f'; did you mean "{prefix}{by_lower[close[0]]}"?' if close else ""
