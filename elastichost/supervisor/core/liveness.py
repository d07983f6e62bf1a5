"""When a process that reports no progress counts as hung. Pure.

The work loop of a process reports progress every half second, but not within one call: a batch, or a page fault that
reads from disk. So silence alone does not show a hang. The kernel's state of the silent process decides how long the
supervisor waits. The first row that fits counts:

    the process                                how long it may be silent
    stopped (SIGSTOP)                          SILENCE_S: it cannot continue until it gets SIGCONT
    asleep, used no CPU for IDLE_S, and has    SILENCE_S, if this silence is more than LONGEST_FACTOR times its longest
    worked before                              one: it may wait for a lost message
    has not worked yet                         FIRST_FACTOR times `hang_timeout_s`: the first batches compile kernels
                                               and touch every page
    any other                                  `hang_timeout_s`, or LONGEST_FACTOR times its longest silence if that is
                                               more: a slow batch cannot be told from an endless loop

A `hang_timeout_s` below SILENCE_S replaces it.

A process that counts as hung is killed by the reconciler. Its next incarnation starts with fresh `Signs`.
"""

from __future__ import annotations

import msgspec

__all__ = ["IDLE_S", "SILENCE_S", "Signs", "hang_reason"]

SILENCE_S = 3.0
IDLE_S = 1.5  # without CPU time used: one observation of a sleeping process proves nothing
LONGEST_FACTOR = 4.0
FIRST_FACTOR = 3.0
_STOPPED, _SLEEPS = "T", "S"


class Signs(msgspec.Struct, frozen=True):
    """Signs of life of one incarnation. state: the kernel's state letter, "" while it was not needed. idle_s: how long
    it has used no CPU time. longest_s: its longest silence that has ended, 0 before it has worked. has_worked: it has
    trained a batch or answered a request."""

    state: str = ""
    idle_s: float = 0.0
    longest_s: float = 0.0
    has_worked: bool = False


def hang_reason(silent_s: float, signs: Signs, hang_timeout_s: float) -> str:
    """Why a process that is silent for `silent_s` counts as hung; "" while it does not."""
    if silent_s <= min(SILENCE_S, hang_timeout_s):
        return ""
    if signs.state == _STOPPED:
        return f"no progress for {silent_s:.1f} s: it is stopped by a signal"
    is_unusual = signs.has_worked and silent_s > LONGEST_FACTOR * signs.longest_s
    if signs.state == _SLEEPS and signs.idle_s >= IDLE_S and is_unusual:
        return f"no progress for {silent_s:.1f} s: it sleeps and has used no CPU time for {signs.idle_s:.1f} s"
    return f"no progress for {silent_s:.1f} s" if silent_s > _patience_s(signs, hang_timeout_s) else ""


def _patience_s(signs: Signs, hang_timeout_s: float) -> float:
    if not signs.has_worked:
        return FIRST_FACTOR * hang_timeout_s
    return max(hang_timeout_s, LONGEST_FACTOR * signs.longest_s)
