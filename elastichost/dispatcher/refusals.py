"""Messages that were refused, in the journal: the first, then once a while how many. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusals"]

EVERY_S = 60.0  # whoever sends nonsense may send much of it


@dataclass(slots=True)
class Refusals:
    """untold: since the last note; last: what was wrong with the last of these."""

    untold: int = 0
    last: str = ""
    next_s: float = 0.0

    def add(self, problem: str) -> None:
        self.untold, self.last = self.untold + 1, problem

    def note(self, now_s: float) -> str:
        """Words for the journal; "": nothing is to be said now. Call it every turn."""
        if not self.untold or now_s < self.next_s:
            return ""
        count, self.untold, self.next_s = self.untold, 0, now_s + EVERY_S
        return self.last if count == 1 else f"{count} messages were refused; the last: {self.last}"
