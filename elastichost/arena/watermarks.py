"""Facts about each worker that outlive the worker: a file of words in the arena.

`begun`, an incarnation and a sequence for each worker: the last batch whose row updates the worker began in place, in
the arena that it maps. If the worker dies and this sequence is larger than that of the dense owner's applied record,
the batch is torn: its rows were updated, at least in part, and it was never committed.

`lookups`: how many ids of training batches a worker has looked up since the arena was made, and how many of these had
no row because memory was short. A later incarnation of the worker continues the counts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elastichost.arena.files import MappedFile
from elastichost.arena.layout import MAX_WORKERS
from elastichost.arena.words import announce, load_word

__all__ = ["Watermarks"]

FILE_NAME = "watermarks"
_WORDS = 4  # words of a worker
_BYTES = MAX_WORKERS * _WORDS * 8
_INCARNATION, _SEQUENCE, _LOOKED_UP, _WITHOUT_ROW = range(_WORDS)


class Watermarks:
    """The file `watermarks` of an arena. Each worker is the only writer of its words.

    A new incarnation sets the sequence to 0 before it stores its own number. A reader loads the incarnation before and
    after the sequence. So no reader takes the sequence of one incarnation for that of another.
    """

    def __init__(self, arena_directory: Path) -> None:
        self._file = MappedFile.attach(arena_directory / FILE_NAME, _BYTES)
        self.words = self._file.array(np.int64, 0, _BYTES // 8)  # int64 [4 * workers], for a replica
        self._of_worker = self.words.reshape(MAX_WORKERS, _WORDS)

    @staticmethod
    def create(arena_directory: Path) -> None:
        """Makes the file of a new arena. Raises ArenaError."""
        file = MappedFile.create(arena_directory / FILE_NAME, _BYTES)
        file.allocate(0, _BYTES, "the watermarks")
        file.close()

    def note_begun(self, worker: int, incarnation: int, sequence: int) -> None:
        """Stores the batch that the worker begins. The caller changes the batch's rows afterwards: any process that
        reads a changed row also reads this watermark."""
        own = self._of_worker[worker]
        if own[_INCARNATION] != incarnation:
            announce(own, _SEQUENCE, 0)
            announce(own, _INCARNATION, incarnation)
        announce(own, _SEQUENCE, sequence)

    def begun(self, worker: int, incarnation: int) -> int:
        """Sequence of the batch that this incarnation began last; 0 if it began none. The row updates of all its
        earlier batches are complete."""
        own = self._of_worker[worker]
        before = load_word(own, _INCARNATION)
        sequence = load_word(own, _SEQUENCE)
        # Incarnations only grow: if both loads give the same one, no other incarnation wrote the sequence in between.
        return int(sequence) if before == incarnation == load_word(own, _INCARNATION) else 0

    def note_lookups(self, worker: int, looked_up: int, without_row: int) -> None:
        """Counts the ids of a trained batch. without_row: how many of them had no row because memory was short."""
        own = self._of_worker[worker]
        own[_LOOKED_UP] += looked_up
        own[_WITHOUT_ROW] += without_row

    def lookups(self) -> tuple[int, int]:
        """(ids looked up, ids among them that had no row because memory was short), of all workers that map this
        arena."""
        return int(self._of_worker[:, _LOOKED_UP].sum()), int(self._of_worker[:, _WITHOUT_ROW].sum())
