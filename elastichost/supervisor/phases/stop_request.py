"""Why a run is asked to stop: a signal, removed files of its arena, or a source that is gone."""

from __future__ import annotations

from elastichost.host.stop_signals import StopSignals
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.phases.arena_watch import ArenaWatch

__all__ = ["StopRequest"]


class StopRequest:
    """Checked every turn. Each reason has the same effect: workers drain, a checkpoint is taken, and the run ends."""

    def __init__(self, run: RunContext, signals: StopSignals, arenas: ArenaWatch) -> None:
        self._run, self._signals, self._arenas = run, signals, arenas

    def reason(self) -> str:
        """Why the run is asked to stop; "" while it is not."""
        if self._arenas.is_gone():
            return f"the files of {self._arenas.gone} were removed"
        if self._signals.count:
            return f"{self._signals.name}: the run was asked to stop"
        if self._run.lost_source:
            waited_s = self._run.job.data.input.patience_s
            return (
                f"the source {self._run.lost_source} gave no byte for {waited_s:g} s (data.input.patience_s): "
                "bring it back, then resume the run"
            )
        return ""

    def is_wanted(self) -> bool:
        """Whether the run is asked to stop."""
        return bool(self.reason())
