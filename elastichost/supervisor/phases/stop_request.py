"""Why a run is asked to stop: a signal, or removed files of its arena."""

from __future__ import annotations

from elastichost.host.stop_signals import StopSignals
from elastichost.supervisor.phases.arena_watch import ArenaWatch

__all__ = ["StopRequest"]


class StopRequest:
    """Checked every turn. Either reason has the same effect: workers drain, a checkpoint is taken, and the run ends."""

    def __init__(self, signals: StopSignals, arenas: ArenaWatch) -> None:
        self._signals, self._arenas = signals, arenas

    def reason(self) -> str:
        """Why the run is asked to stop; "" while it is not."""
        if self._arenas.is_gone():
            return f"the files of {self._arenas.gone} were removed"
        return f"{self._signals.name}: the run was asked to stop" if self._signals.count else ""

    def is_wanted(self) -> bool:
        """Whether the run is asked to stop."""
        return bool(self.reason())
