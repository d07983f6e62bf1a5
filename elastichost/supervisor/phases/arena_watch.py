"""Whether the arena's names are still there: somebody may have removed them, by hand or as systemd's RemoveIPC does.

What is mapped stays mapped without a name, so who works goes on working; but nobody who starts later could join.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from elastichost.arena.arena import LAYOUT_FILE
from elastichost.errors import ArenaError
from elastichost.supervisor.context import Run

__all__ = ["ArenaWatch"]

LOOK_EVERY_S = 0.5


class ArenaWatch:
    """gone: the first of the watched directories that is no more."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._known: dict[Path, int] = {}
        self._look_at_s = 0.0
        self.gone: Path | None = None

    def watch(self, directories: Iterable[Path]) -> None:
        """From now on these, of the arenas on this machine, which are complete now; before, nothing is watched."""
        self._known, self.gone = {path: _number(path) for path in directories}, None

    def is_gone(self) -> bool:
        """Whether the files of an arena were removed while the run needs them, as far as was seen."""
        now_s = self._run.now_s()
        if self.gone is None and now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self.gone = next((path for path, number in self._known.items() if _number(path) != number), None)
        return self.gone is not None

    def error(self, newest: Path | None, why_not_saved: str = "") -> ArenaError:
        """newest: the newest checkpoint. why_not_saved: what ended the run before all that was trained could be saved,
        or ""."""
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
