"""A small fact about each worker that must outlive it: a file of words in the arena.

`begun[worker] = (life, sequence)`: the batch whose row updates that worker began last in place, in the arena that it
maps. Beyond the dense owner's applied record after a death it means a torn batch: rows updated, never committed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elastichost.arena.files import MappedFile
from elastichost.arena.layout import MAX_WORKERS

__all__ = ["Watermarks"]

FILE_NAME = "watermarks"
_BYTES = MAX_WORKERS * 2 * 8


class Watermarks:
    """The file `watermarks` of an arena. Every pair of words has one writer; a life that changes is written with
    its sequence reset first, so a reader never sees a new life with an old sequence."""

    def __init__(self, arena_directory: Path) -> None:
        self._file = MappedFile.attach(arena_directory / FILE_NAME, _BYTES)
        self.words = self._file.array(np.int64, 0, _BYTES // 8)  # int64 [2 * workers], for a double
        self._begun = self.words.reshape(MAX_WORKERS, 2)

    @staticmethod
    def create(arena_directory: Path) -> None:
        """Makes the file of a new arena."""
        file = MappedFile.create(arena_directory / FILE_NAME, _BYTES)
        file.allocate(0, _BYTES, "the watermarks")
        file.close()

    def note_begun(self, worker: int, life: int, sequence: int) -> None:
        pair = self._begun[worker]
        if pair[0] != life:
            pair[1] = 0
            pair[0] = life
        pair[1] = sequence

    def begun(self, worker: int, life: int) -> int:
        """Sequence of the batch this life began last; 0 if none."""
        return int(self._begun[worker, 1]) if int(self._begun[worker, 0]) == life else 0
