"""The interface through which the display or a test observes a run in the supervisor's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from elastichost.metrics import RunStatus

if TYPE_CHECKING:  # the import loads numpy, which would make `--help` slow
    from elastichost.runs.events import JournalLine

__all__ = ["RunObserver", "SilentObserver"]


class RunObserver(Protocol):
    """Callbacks from the supervisor's loop. Each must return at once and raise nothing."""

    def on_status(self, status: RunStatus) -> None:
        """Called once a second."""
        ...

    def on_event(self, line: JournalLine) -> None:
        """Called for every line of the journal."""
        ...


class SilentObserver:
    """An observer that does nothing."""

    def on_status(self, status: RunStatus) -> None:
        return

    def on_event(self, line: JournalLine) -> None:
        return
