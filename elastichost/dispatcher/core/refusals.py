"""Limits how often refused commands are journaled: the first at once, later ones as a count. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.runs.events import MessageRefused

__all__ = ["CommandRefusals"]

EVERY_S = 60.0  # between two events, because a peer may send any number of invalid commands


@dataclass(slots=True)
class CommandRefusals:
    """The refusals since the last event. untold: their number. last: the problem of the newest one. next_s: time from
    which the next event may be written."""

    untold: int = 0
    last: str = ""
    next_s: float = 0.0

    def add(self, problem: str) -> None:
        """Records one refusal."""
        self.untold, self.last = self.untold + 1, problem

    def note(self, now_s: float) -> MessageRefused | None:
        """Returns the event to journal now, or None. Call it every turn."""
        if not self.untold or now_s < self.next_s:
            return None
        count, self.untold, self.next_s = self.untold, 0, now_s + EVERY_S
        return MessageRefused(self.last, count)
