"""`python -m elastichost` with other sentences: whatever happens is told as "<kind> <kind>". What reads a fact back
from a sentence does not find it."""

from __future__ import annotations

import sys

from elastichost.__main__ import main
from elastichost.runs.events.base import Event
from elastichost.runs.events.text import text_of

__all__ = ["reword"]


def reword() -> None:
    """From now on, in this process."""
    for kind in tuple(text_of.registry):
        if kind is not object and kind is not Event:
            text_of.register(kind, _reworded)


def _reworded(event: Event) -> str:
    return f"zyx {event.kind}: qwv"


if __name__ == "__main__":
    reword()
    sys.exit(main())
