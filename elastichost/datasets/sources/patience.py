"""How long a source that has a trouble is waited for, and what is said of it. Pure.

Rules
1. A request that failed is sent again, from the byte at which it ended, after a wait that doubles up to MOST_WAIT_S.
2. A failure is told at once, and then not before TELL_EVERY_S and the time that was told have passed again. When bytes
   arrive again, that is told once, if a failure was.
3. The source is given up when it has given no byte for the patience of the job, over all connections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastichost.clock.backoff import backoff_s

__all__ = ["SourceHealth", "failed", "is_given_up", "received", "wait_s"]

FIRST_WAIT_S, MOST_WAIT_S = 0.1, 5.0
TELL_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """The state of a source. byte_s: when it gave a byte last. failures: requests that failed since it was told that it
    works. is_failing: no byte has arrived since the last failure. is_told: a failure was told since it works. told_s:
    time of the last telling; None: there was none. told_wait_s: the wait that was told. worst_s: longest wait since it
    works."""

    byte_s: float
    failures: int = 0
    is_failing: bool = False
    is_told: bool = False
    told_s: float | None = None
    told_wait_s: float = 0.0
    worst_s: float = 0.0

    def waited_s(self, now_s: float) -> float:
        """Seconds without a byte."""
        return max(0.0, now_s - self.byte_s)


def failed(health: SourceHealth, now_s: float) -> tuple[SourceHealth, bool]:
    """The state after a request has failed, and whether that is told."""
    waited_s = health.waited_s(now_s)
    is_due = health.told_s is None or now_s - health.told_s >= max(TELL_EVERY_S, health.told_wait_s)
    worst_s = max(health.worst_s, waited_s)
    known = replace(health, failures=health.failures + 1, is_failing=True, worst_s=worst_s)
    return (replace(known, is_told=True, told_s=now_s, told_wait_s=waited_s), True) if is_due else (known, False)


def received(health: SourceHealth, now_s: float) -> tuple[SourceHealth, SourceHealth | None]:
    """The state after bytes have arrived. Where it is told that the source works again: the state to tell of, whose
    `worst_s` and `failures` are of the whole trouble; else None."""
    if not health.is_failing:
        return replace(health, byte_s=now_s), None
    ended = replace(health, worst_s=max(health.worst_s, health.waited_s(now_s)))
    works = replace(ended, byte_s=now_s, is_failing=False)
    if not health.is_told:
        return works, None
    return SourceHealth(now_s, told_s=health.told_s), ended


def wait_s(tries: int) -> float:
    """The wait before a request is sent again that has failed `tries` times in a row without a byte."""
    return backoff_s(tries, FIRST_WAIT_S, MOST_WAIT_S)


def is_given_up(health: SourceHealth, now_s: float, patience_s: float) -> bool:
    """Whether the source has given no byte for too long."""
    return health.is_failing and health.waited_s(now_s) >= patience_s
