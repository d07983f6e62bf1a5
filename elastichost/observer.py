"""Who watches a run from inside the supervisor's process: the display, or a test."""

from __future__ import annotations

from typing import Protocol

from elastichost.metrics import JournalEvent, RunStatus

__all__ = ["RunObserver", "SilentObserver"]


class RunObserver(Protocol):
    """Called from the supervisor's loop; must return at once and raise nothing."""

    def on_status(self, status: RunStatus) -> None:
        """Once a second."""
        ...

    def on_event(self, event: JournalEvent) -> None:
        """For every line of the journal."""
        ...


class SilentObserver:
    """Watches and says nothing."""

    def on_status(self, status: RunStatus) -> None:
        return

    def on_event(self, event: JournalEvent) -> None:
        return
