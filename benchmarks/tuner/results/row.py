"""One row of the table of aims, and its verdict. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from benchmarks.harness.aims import Aim

__all__ = ["Row", "reached", "reached_once"]

Reached = Literal["yes", "not each time", "once", "**no**", ""]


class Row(msgspec.Struct, frozen=True):
    """One row. others: the figure to beat, and its source. reached: "yes" if a repetition would reach the aim too; "not
    each time" if the mean or median reaches it, but the unfavourable end of its interval or the worst round does not;
    "once" if it was measured only once; "" without an aim."""

    what: str
    others: str
    aim: str
    ours: str
    reached: Reached


Judged = tuple[Aim, float, float]  # an aim, the mean or median, and the unfavourable end of its interval


def reached(*judged: Judged) -> Reached:
    if not all(aim.is_met(typically) for aim, typically, _ in judged):
        return "**no**"
    return "yes" if all(aim.is_met(at_worst) for aim, _, at_worst in judged) else "not each time"


def reached_once(*judged: tuple[Aim, float]) -> Reached:
    """The verdict on a single run: it is not known whether another run would reach the aim."""
    return "once" if all(aim.is_met(value) for aim, value in judged) else "**no**"
