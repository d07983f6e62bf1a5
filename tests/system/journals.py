"""Reads journals for tests: lines, or events of given kinds."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from elastichost.runs.events import Event, JournalLine
from elastichost.runs.journal import read_journal

__all__ = ["Kind", "events_of", "lines_of"]

Kind = TypeVar("Kind", bound=Event)


def lines_of(journal: Path, *kinds: type[Event]) -> list[JournalLine]:
    """The lines with events of these kinds in order; without kinds, all lines."""
    return [line for line in read_journal(journal) if not kinds or isinstance(line.event, kinds)]


def events_of(journal: Path, *kinds: type[Kind]) -> list[Kind]:
    """Events of these kinds, in order."""
    return [line.event for line in read_journal(journal) if isinstance(line.event, kinds)]
