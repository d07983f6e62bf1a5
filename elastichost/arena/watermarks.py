"""Small facts about workers that must outlive the process that wrote them: a file of words in the arena.

`applied[server, worker] = (life, sequence)`: the last row push of that worker that this PS applied; written by the
PS. `begun[worker] = (life, sequence)`: the batch whose row updates that worker began last; written by the worker.
Either of them beyond the dense owner's applied record after a death means a torn batch: rows updated (in place with
direct access, by pushes with served access), never committed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.files import MappedFile
from elastichost.arena.layout import MAX_WORKERS

__all__ = ["MAX_SERVERS", "Watermarks"]

FILE_NAME = "watermarks"
MAX_SERVERS = 64
_BYTES = (MAX_SERVERS + 1) * MAX_WORKERS * 2 * 8


class Watermarks:
    """The file `watermarks` of an arena. Every pair of words has one writer; a life that changes is written with
    its sequence reset first, so a reader never sees a new life with an old sequence."""

    def __init__(self, arena_directory: Path) -> None:
        self._file = MappedFile.attach(arena_directory / FILE_NAME, _BYTES)
        words = self._file.array(np.int64, 0, _BYTES // 8).reshape(MAX_SERVERS + 1, MAX_WORKERS, 2)
        self._applied, self._begun = words[:MAX_SERVERS], words[MAX_SERVERS]

    @staticmethod
    def create(arena_directory: Path) -> None:
        """Makes the file of a new arena."""
        file = MappedFile.create(arena_directory / FILE_NAME, _BYTES)
        file.allocate(0, _BYTES, "the watermarks")
        file.close()

    def note_applied(self, server: int, worker: int, life: int, sequence: int) -> None:
        _write(self._applied[server, worker], life, sequence)

    def applied(self, server: int) -> list[tuple[int, int, int]]:
        """(worker, life, sequence) of every worker that ever pushed to this PS."""
        rows = self._applied[server]
        return [(int(w), int(rows[w, 0]), int(rows[w, 1])) for w in np.flatnonzero(rows[:, 0])]

    def note_begun(self, worker: int, life: int, sequence: int) -> None:
        _write(self._begun[worker], life, sequence)

    def begun(self, worker: int, life: int) -> int:
        """Sequence of the batch this life began last; 0 if none."""
        return int(self._begun[worker, 1]) if int(self._begun[worker, 0]) == life else 0

    def reached(self, worker: int, life: int) -> int:
        """Sequence of the newest batch of this life that touched any rows, its own or through a PS; 0 if none."""
        pushed = self._applied[:, worker]
        return max(self.begun(worker, life), int(pushed[pushed[:, 0] == life, 1].max(initial=0)))


def _write(pair: npt.NDArray[np.int64], life: int, sequence: int) -> None:
    if pair[0] != life:
        pair[1] = 0
        pair[0] = life
    pair[1] = sequence
