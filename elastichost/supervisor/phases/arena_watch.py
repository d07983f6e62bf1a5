"""Checks that the files of the arena still exist. A user may remove them, or systemd's RemoveIPC does at log-out.

Processes that have mapped the files go on without their names, but a process that starts later could not attach.
Therefore the run drains, takes a checkpoint and ends when a file is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from elastichost.arena.arena import LAYOUT_FILE
from elastichost.errors import ArenaError
from elastichost.supervisor.context import RunContext

__all__ = ["ArenaWatch"]

LOOK_EVERY_S = 0.5


class ArenaWatch:
    """Watches arena directories. gone: the first one whose files were removed; None: all exist."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._known: dict[Path, int] = {}
        self._look_at_s = 0.0
        self.gone: Path | None = None

    def watch(self, directories: Iterable[Path]) -> None:
        """Watches these directories from now on, instead of earlier ones. Their arenas are complete and on this
        machine."""
        self._known, self.gone = {path: _number(path) for path in directories}, None

    def is_gone(self) -> bool:
        """Whether the files of an arena were removed; they are checked every LOOK_EVERY_S."""
        now_s = self._run.now_s()
        if self.gone is None and now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self.gone = next((path for path, number in self._known.items() if _number(path) != number), None)
        return self.gone is not None

    def error(self, newest: Path | None, why_not_saved: str = "") -> ArenaError:
        """The error of the run. newest: the newest checkpoint. why_not_saved: what ended the run before a final
        checkpoint; "": it was taken."""
        checkpoint = f"the newest checkpoint is {newest}" if newest is not None else "there is no checkpoint"
        if why_not_saved:
            end = f"samples trained since the last checkpoint could not be saved ({why_not_saved}); {checkpoint}"
        else:
            end = f"all trained samples are saved in {newest}"
        return ArenaError(
            f"the files of the arena {self.gone} were removed while the job was training; {end}",
            hint=f"continue from the checkpoint with `elastichost resume {self._run.directory.path}`; `elastichost "
            "doctor` shows whether systemd removes such files",
        )


def _number(directory: Path) -> int:
    """Inode number of the file that makes an arena complete; 0: it does not exist."""
    try:
        return os.stat(directory / LAYOUT_FILE, follow_symlinks=False).st_ino
    except OSError:
        return 0
