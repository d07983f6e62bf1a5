"""How long to wait before something that failed is tried again. Pure."""

from __future__ import annotations

__all__ = ["backoff_s"]

MOST_DOUBLINGS = 64  # something may fail for days: 2.0 ** 1024 is no float, and raises OverflowError


def backoff_s(times: int, first_s: float, most_s: float) -> float:
    """The wait in seconds after `times` failures in a row, at least 1: `first_s`, doubled with each further failure, at
    most `most_s`."""
    return float(min(most_s, first_s * 2.0 ** min(times - 1, MOST_DOUBLINGS)))
