"""When a process that gives no sign of progress counts as hung. Pure.

Its work loop gives a sign every half second, but not within a call: a batch, a page that comes from the disk. So
silence alone says little. What the kernel says of a silent process decides how long it is waited for:

    stopped (SIGSTOP)                          not at all: nobody will wake it but who stopped it
    sleeps, and no thread of it computes       SILENCE_S, when it has worked before and never was silent like this:
                                               it waits for something that does not come
    computes, or waits for the disk            `hang_timeout_s`, or several times its longest silence so far: a slow
                                               batch and an endless loop look alike
    has not worked yet                         FIRST_FACTOR times that: first batches compile, and touch every page
"""

from __future__ import annotations

import msgspec

__all__ = ["IDLE_S", "SILENCE_S", "Signs", "hang_reason"]

SILENCE_S = 3.0
IDLE_S = 1.5  # without a tick of the clock of CPU time: one look would prove nothing
LONGEST_FACTOR = 4.0
FIRST_FACTOR = 3.0
_STOPPED, _SLEEPS = "T", "S"


class Signs(msgspec.Struct, frozen=True):
    """Of one incarnation. `state`: the kernel's letter ("" while nobody had to look); `idle_s`: for how long it has
    used no CPU time; `longest_s`: its longest silence that ended, 0 before it has worked; `has_worked`: batches done,
    requests answered."""

    state: str = ""
    idle_s: float = 0.0
    longest_s: float = 0.0
    has_worked: bool = False


def hang_reason(silent_s: float, signs: Signs, hang_timeout_s: float) -> str:
    """Why a process that works, and has been silent for so long, counts as hung; "" while it does not."""
    if silent_s <= min(SILENCE_S, hang_timeout_s):
        return ""
    if signs.state == _STOPPED:
        return f"no progress for {silent_s:.1f} s: it was stopped by a signal"
    is_unusual = signs.has_worked and silent_s > LONGEST_FACTOR * signs.longest_s
    if signs.state == _SLEEPS and signs.idle_s >= IDLE_S and is_unusual:
        return f"no progress for {silent_s:.1f} s: it sleeps and waits for something that does not come"
    return f"no progress for {silent_s:.1f} s" if silent_s > _patience_s(signs, hang_timeout_s) else ""


def _patience_s(signs: Signs, hang_timeout_s: float) -> float:
    if not signs.has_worked:
        return FIRST_FACTOR * hang_timeout_s
    return max(hang_timeout_s, LONGEST_FACTOR * signs.longest_s)
