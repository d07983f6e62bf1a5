"""`python -m elastichost` with replaced sentences: the sentence of every event is "<kind> <kind>". Code that parses a
fact from a sentence then fails."""

from __future__ import annotations

import sys

from elastichost.__main__ import main
from elastichost.runs.events.base import Event
from elastichost.runs.events.text import text_of

__all__ = ["reword"]


def reword() -> None:
    """Replaces the sentences in this process."""
    for kind in tuple(text_of.registry):
        if kind is not object and kind is not Event:
            text_of.register(kind, _reworded)


def _reworded(event: Event) -> str:
    return f"zyx {event.kind}: qwv"


if __name__ == "__main__":
    reword()
    sys.exit(main())
