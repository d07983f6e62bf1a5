"""Messages that were refused, in the journal: the first, then once a while how many. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.runs.events import MessageRefused

__all__ = ["CommandRefusals"]

EVERY_S = 60.0  # whoever sends nonsense may send much of it


@dataclass(slots=True)
class CommandRefusals:
    """untold: since the last note; last: what was wrong with the last of these."""

    untold: int = 0
    last: str = ""
    next_s: float = 0.0

    def add(self, problem: str) -> None:
        self.untold, self.last = self.untold + 1, problem

    def note(self, now_s: float) -> MessageRefused | None:
        """None: nothing is to be told now. Call it every turn."""
        if not self.untold or now_s < self.next_s:
            return None
        count, self.untold, self.next_s = self.untold, 0, now_s + EVERY_S
        return MessageRefused(self.last, count)
