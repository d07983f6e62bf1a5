"""Whether the arena's names are still there: somebody may have removed them, by hand or as systemd's RemoveIPC does.

What is mapped stays mapped without a name, so who works goes on working; but nobody who starts later could join.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from elastichost.arena.arena import LAYOUT_FILE
from elastichost.errors import ArenaError
from elastichost.supervisor.context import Run

__all__ = ["ArenaWatch"]

LOOK_EVERY_S = 0.5


class ArenaWatch:
    """directories: of the arenas on this machine, which are complete now. newest: the newest checkpoint. gone: the
    first of the directories that is no more."""

    def __init__(self, run: Run, directories: Sequence[Path], newest: Callable[[], Path | None]) -> None:
        self._known = {path: _number(path) for path in directories}
        self._run, self._newest = run, newest
        self._look_at_s = 0.0
        self.gone: Path | None = None

    def is_gone(self) -> bool:
        """Whether the files of an arena were removed while the run needs them, as far as was seen."""
        now_s = self._run.now_s()
        if self.gone is None and now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self.gone = next((path for path, number in self._known.items() if _number(path) != number), None)
        return self.gone is not None

    def error(self, why_not_saved: str = "") -> ArenaError:
        """why_not_saved: what ended the run before all that was trained could be saved, or ""."""
        newest = self._newest()
        checkpoint = f"the newest checkpoint is {newest}" if newest is not None else "there is no checkpoint"
        if why_not_saved:
            end = f"what was trained last could not be saved ({why_not_saved}); {checkpoint}"
        else:
            end = f"what was trained is saved in {newest}"
        return ArenaError(
            f"somebody removed the files of the arena {self.gone} while the job was training; {end}",
            hint=f"`elastichost resume {self._run.directory.path}` goes on from the checkpoint; `elastichost doctor` "
            "says whether systemd removes such files",
        )


def _number(directory: Path) -> int:
    """Of the file that makes an arena complete; 0: it is not there."""
    try:
        return os.stat(directory / LAYOUT_FILE, follow_symlinks=False).st_ino
    except OSError:
        return 0
