"""What failed for want of memory is not asked for again at once, for nothing has changed: it waits, twice as long each
time, or until memory has become free. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["FIRST_S", "FREED_BYTES", "MOST_S", "Failed", "Retries", "failed", "may_try", "succeeded", "waits_s"]

FIRST_S, MOST_S = 30.0, 600.0
FREED_BYTES = 32 << 20  # more than there were: then it may be tried before its time


class Failed(msgspec.Struct, frozen=True):
    """times: in a row. until_s: it is left alone. left_bytes: memory there was when it failed, None: not known."""

    times: int
    until_s: float
    left_bytes: int | None = None


class Retries(msgspec.Struct, frozen=True):
    """What failed and has not succeeded since, by what it is."""

    known: Mapping[str, Failed] = {}


def failed(retries: Retries, what: str, now_s: float, left_bytes: int | None = None) -> tuple[Retries, bool]:
    """And whether that is news: the first time since it succeeded."""
    before = retries.known.get(what)
    times = 1 if before is None else before.times + 1
    wait_s = min(MOST_S, FIRST_S * 2.0 ** min(times - 1, 16))
    found = Failed(times, now_s + wait_s, left_bytes)
    return Retries({**retries.known, what: found}), before is None


def succeeded(retries: Retries, what: str) -> Retries:
    return Retries({name: one for name, one in retries.known.items() if name != what})


def waits_s(retries: Retries, what: str, now_s: float) -> float:
    """Until it may be tried again if no memory becomes free; 0.0: it may now."""
    found = retries.known.get(what)
    return 0.0 if found is None else max(0.0, found.until_s - now_s)


def may_try(retries: Retries, what: str, now_s: float, left_bytes: int | None = None) -> bool:
    """left_bytes: memory there is now."""
    found = retries.known.get(what)
    if found is None or now_s >= found.until_s:
        return True
    if left_bytes is None or found.left_bytes is None:
        return False
    return left_bytes >= found.left_bytes + FREED_BYTES
