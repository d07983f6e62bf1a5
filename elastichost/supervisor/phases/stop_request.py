"""Why a run is to stop: a signal, or the loss of its arena's files."""

from __future__ import annotations

from elastichost.host.stop_signals import StopSignals
from elastichost.supervisor.phases.arena_watch import ArenaWatch

__all__ = ["StopRequest"]


class StopRequest:
    """Asked every turn. Both reasons are met in the same way: workers drain, then a checkpoint, then the run ends."""

    def __init__(self, signals: StopSignals, arenas: ArenaWatch) -> None:
        self._signals, self._arenas = signals, arenas

    def reason(self) -> str:
        """ "" while the run should go on."""
        if self._arenas.is_gone():
            return f"the files of {self._arenas.gone} were removed"
        return f"{self._signals.name}: the job is asked to stop" if self._signals.count else ""

    def is_wanted(self) -> bool:
        """Whether the run is to stop."""
        return bool(self.reason())
