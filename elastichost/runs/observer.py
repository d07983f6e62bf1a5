"""Who watches a run from inside the supervisor's process: the display, or a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from elastichost.metrics import RunStatus

if TYPE_CHECKING:  # these load numpy, and `--help` does not wait for that
    from elastichost.runs.events import JournalLine

__all__ = ["RunObserver", "SilentObserver"]


class RunObserver(Protocol):
    """Called from the supervisor's loop; must return at once and raise nothing."""

    def on_status(self, status: RunStatus) -> None:
        """Once a second."""
        ...

    def on_event(self, line: JournalLine) -> None:
        """For every line of the journal."""
        ...


class SilentObserver:
    """Watches and says nothing."""

    def on_status(self, status: RunStatus) -> None:
        return

    def on_event(self, line: JournalLine) -> None:
        return
