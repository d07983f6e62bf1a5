"""Small facts about each worker that must outlive it: a file of words in the arena.

`begun[worker] = (incarnation, sequence)`: the batch whose row updates that worker began last in place, in the arena
that it maps. Beyond the dense owner's applied record after a death it means a torn batch: rows updated, never
committed.

`lookups`: how many ids of training batches a worker has looked up since the arena was made, and how many of these had
no row because there was no memory for one. A later incarnation of the worker goes on counting.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elastichost.arena.files import MappedFile
from elastichost.arena.layout import MAX_WORKERS
from elastichost.arena.words import announce, load_word

__all__ = ["Watermarks"]

FILE_NAME = "watermarks"
_WORDS = 4  # of a worker
_BYTES = MAX_WORKERS * _WORDS * 8
_INCARNATION, _SEQUENCE, _LOOKED_UP, _WITHOUT_ROW = range(_WORDS)


class Watermarks:
    """The file `watermarks` of an arena. Every worker's words have one writer; an incarnation that changes is written
    with its sequence reset first, and read before and after the sequence: a reader never takes one incarnation's for
    another's."""

    def __init__(self, arena_directory: Path) -> None:
        self._file = MappedFile.attach(arena_directory / FILE_NAME, _BYTES)
        self.words = self._file.array(np.int64, 0, _BYTES // 8)  # int64 [4 * workers], for a double
        self._of_worker = self.words.reshape(MAX_WORKERS, _WORDS)

    @staticmethod
    def create(arena_directory: Path) -> None:
        """Makes the file of a new arena."""
        file = MappedFile.create(arena_directory / FILE_NAME, _BYTES)
        file.allocate(0, _BYTES, "the watermarks")
        file.close()

    def note_begun(self, worker: int, incarnation: int, sequence: int) -> None:
        """Seen by every process before any row that this batch changes."""
        own = self._of_worker[worker]
        if own[_INCARNATION] != incarnation:
            announce(own, _SEQUENCE, 0)
            announce(own, _INCARNATION, incarnation)
        announce(own, _SEQUENCE, sequence)

    def begun(self, worker: int, incarnation: int) -> int:
        """Sequence of the batch this incarnation began last; 0 if none. The rows of all batches before it have
        changed."""
        own = self._of_worker[worker]
        before = load_word(own, _INCARNATION)
        sequence = load_word(own, _SEQUENCE)
        # Incarnations only grow: the same one on both sides means that nobody else wrote the sequence between.
        return int(sequence) if before == incarnation == load_word(own, _INCARNATION) else 0

    def note_lookups(self, worker: int, looked_up: int, without_row: int) -> None:
        """So many ids of a batch that was trained; without_row: of these, for want of memory."""
        own = self._of_worker[worker]
        own[_LOOKED_UP] += looked_up
        own[_WITHOUT_ROW] += without_row

    def lookups(self) -> tuple[int, int]:
        """(ids looked up, of these without a row for want of memory), of all workers that map this arena."""
        return int(self._of_worker[:, _LOOKED_UP].sum()), int(self._of_worker[:, _WITHOUT_ROW].sum())
