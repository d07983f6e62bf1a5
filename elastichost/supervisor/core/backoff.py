"""When an action that failed is tried again; above all one that failed for lack of memory. Pure.

An immediate retry would fail for the same reason. Therefore an action that lacked memory waits FIRST_S after its first
failure and twice as long after each further one, up to MOST_S. It may be tried earlier when FREED_BYTES more memory is
free than at its last failure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from elastichost.clock.backoff import backoff_s

__all__ = [
    "FIRST_S",
    "FREED_BYTES",
    "MOST_S",
    "Failed",
    "Retries",
    "failed",
    "may_try",
    "succeeded",
    "waits_s",
]

FIRST_S, MOST_S = 30.0, 600.0
FREED_BYTES = 32 << 20  # more free memory than at the failure: enough to try again before the wait is over


class Failed(msgspec.Struct, frozen=True):
    """times: failures in a row. until_s: no retry before this time. left_bytes: free memory at the last failure; None:
    not known."""

    times: int
    until_s: float
    left_bytes: int | None = None


class Retries(msgspec.Struct, frozen=True):
    """Name of an action -> its failures since it last succeeded."""

    known: Mapping[str, Failed] = {}


def failed(retries: Retries, what: str, now_s: float, left_bytes: int | None = None) -> tuple[Retries, bool]:
    """Records a failure. Returns the new state, and True for the first failure since the last success."""
    before = retries.known.get(what)
    times = 1 if before is None else before.times + 1
    found = Failed(times, now_s + backoff_s(times, FIRST_S, MOST_S), left_bytes)
    return Retries({**retries.known, what: found}), before is None


def succeeded(retries: Retries, what: str) -> Retries:
    """Forgets the failures of an action."""
    return Retries({name: one for name, one in retries.known.items() if name != what})


def waits_s(retries: Retries, what: str, now_s: float) -> float:
    """Seconds until a retry if no memory becomes free; 0.0: it may be tried now."""
    found = retries.known.get(what)
    return 0.0 if found is None else max(0.0, found.until_s - now_s)


def may_try(retries: Retries, what: str, now_s: float, left_bytes: int | None = None) -> bool:
    """Whether the action may be tried now. left_bytes: memory that is free now."""
    found = retries.known.get(what)
    if found is None or now_s >= found.until_s:
        return True
    if left_bytes is None or found.left_bytes is None:
        return False
    return left_bytes >= found.left_bytes + FREED_BYTES
