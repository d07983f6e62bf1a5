"""A stand-in for the part of a run that notes events. It keeps the events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from elastichost.runs.events import AnyEvent, Event
from elastichost.runs.events.text import text_of

__all__ = ["Noted"]

Kind = TypeVar("Kind", bound=Event)


class Noted:
    """events: in order, each with its cause in `causes`. attributes: those that a SimpleNamespace needs as a stand-in
    for a run."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.causes: list[str] = []
        self.cause = ""

    def note(self, event: AnyEvent, cause: str | None = None) -> None:
        self.events.append(event)
        self.causes.append(self.cause if cause is None else cause)

    def new_cause(self, kind: str) -> str:
        return kind

    @contextmanager
    def caused_by(self, cause: str) -> Iterator[None]:
        before, self.cause = self.cause, cause
        try:
            yield
        finally:
            self.cause = before

    def of(self, kind: type[Kind]) -> list[Kind]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    @property
    def texts(self) -> list[str]:
        return [text_of(event) for event in self.events]

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "note": self.note,
            "new_cause": self.new_cause,
            "caused_by": self.caused_by,
            "cause": "",
            "plan_cause": "",
        }
