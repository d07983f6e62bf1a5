"""The undo record of a PS. It makes the application of staged pushes all or nothing, even if the PS is killed.

The file has one record: the rows that will change, their old lines, and the stamps of the pushes. It also has the
newest applied stamp of each stager. One application of pushes takes these steps:

    begin      writes the rows and the stamps; the caller writes the old lines
    activate   stores `active` = 1; from then on the old lines are valid, and the caller changes the rows
    finish     stores `finished` = 1, which decides: the change is permanent. Then it copies the stamps to the applied
               stamps, and stores `active` = 0

A kill between two steps leaves one of three states, which the successor finds in the words:

    active = 0                 no row was changed, or the application is complete: nothing to do
    active = 1, finished = 0   rows may be changed in part: `unfinished` gives the old lines, the successor writes them
                               back and calls `taken_back`
    active = 1, finished = 1   all rows have changed: `unfinished` copies the stamps again

Each repair can be repeated, so the successor may be killed within it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.files import MappedFile, aligned
from elastichost.arena.memory_board import UNLIMITED, Allowance
from elastichost.arena.recovery.reserve import reserve
from elastichost.arena.recovery.staging import MAX_STAGERS
from elastichost.arena.words import announce, load_word
from elastichost.errors import ArenaError
from elastichost.wire.crash import crash_point

__all__ = ["OldLines", "UndoRecord"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

MAX_RECORD_BYTES = 1 << 35  # virtual: the file is sparse
_ACTIVE, _FINISHED, _ROWS, _LINES, _STATES, _STAMPS, _RESERVED = range(7)
_APPLIED = 8  # the newest applied stamp of each stager
_STAGERS = _APPLIED + MAX_STAGERS  # of the record: the stagers of the pushes ...
_NEW_STAMPS = _STAGERS + MAX_STAGERS  # ... and the stamps of their pushes
_COUNTS = _NEW_STAMPS + MAX_STAGERS  # of the record: the number of rows of each table


@dataclass(frozen=True, slots=True)
class OldLines:
    """Rows and their values before a change, as `RowLines.save` fills them. All arrays but `bounds` are views of the
    file.

    rows: int64 [n]; the rows of table t are rows[bounds[t] : bounds[t + 1]]. bounds: int64 [T + 1]. lines, states:
    float32, flat; the weights and the optimizer state of the rows.
    """

    rows: Int64
    bounds: Int64
    lines: Float32
    states: Float32


class UndoRecord:
    """The undo record of one PS. The PS applies pushes one after another: `begin`, fill the old lines, `activate`,
    change the rows, `finish`."""

    def __init__(self, directory: Path, server: int, tables: int, allowance: Allowance = UNLIMITED) -> None:
        self._tables, self._allowance = tables, allowance
        self._data_offset = aligned(8 * (_COUNTS + tables))
        self._file = MappedFile.attach_or_create(directory / f"undo-{server}", self._data_offset + MAX_RECORD_BYTES)
        self._file.allocate(0, self._data_offset, "the undo record of a PS")
        self._words: Int64 = self._file.array(np.int64, 0, self._data_offset // 8)
        self._words[_RESERVED] = max(self._data_offset, int(self._words[_RESERVED]))

    def applied(self, stager: int) -> int:
        """Stamp of the stager's newest applied push; 0 if none was applied."""
        return int(self._words[_APPLIED + stager])

    def begin(self, stamps: Sequence[tuple[int, int]], rows: Int64, bounds: Int64, lines: int, states: int) -> OldLines:
        """Begins an application, and returns the arrays that the caller fills with the old lines before `activate`.

        stamps: (stager, stamp) of the pushes to apply. rows: int64 [n]; bounds: int64 [T + 1]. lines, states: floats of
        the old weights and of the old optimizer state. Raises ArenaFullError, and ArenaError when an application is
        still active.
        """
        words = self._words
        if words[_ACTIVE]:
            raise ArenaError("the undo record is in use: the last application of pushes was not finished or taken back")
        size_bytes = self._data_offset + aligned(rows.nbytes) + aligned(4 * lines) + 4 * states
        reserve(self._file, words, _RESERVED, size_bytes, self._allowance, "the undo record of a PS")
        words[_FINISHED] = 0
        words[_ROWS], words[_LINES], words[_STATES], words[_STAMPS] = len(rows), lines, states, len(stamps)
        words[_COUNTS : _COUNTS + self._tables] = np.diff(bounds)
        for number, (stager, stamp) in enumerate(stamps):
            words[_STAGERS + number], words[_NEW_STAMPS + number] = stager, stamp
        old = self._record()
        old.rows[:] = rows
        return old

    def activate(self) -> None:
        """Stores `active`. The old lines are complete; the caller may change the rows afterwards."""
        announce(self._words, _ACTIVE, 1)

    def finish(self) -> None:
        """Stores `finished`, which makes the change permanent, and notes the applied stamps. All rows have changed."""
        announce(self._words, _FINISHED, 1)
        crash_point("ps.apply.after_finish")
        self._note_stamps()

    def _note_stamps(self) -> None:
        words = self._words
        for number in range(int(words[_STAMPS])):
            words[_APPLIED + words[_STAGERS + number]] = words[_NEW_STAMPS + number]
        announce(words, _ACTIVE, 0)

    def unfinished(self) -> OldLines | None:
        """The old lines of an application in which a predecessor was killed. The caller writes them back to the rows,
        then calls `taken_back`. None if there is none; if the predecessor had finished the application, this call notes
        its stamps."""
        if not load_word(self._words, _ACTIVE):
            return None
        if load_word(self._words, _FINISHED):
            self._note_stamps()
            return None
        return self._record()

    def taken_back(self) -> None:
        """Ends the repair: the caller has written the old lines back to their rows."""
        announce(self._words, _ACTIVE, 0)

    def close(self) -> None:
        self._words = np.zeros(0, np.int64)
        self._file.close()

    def _record(self) -> OldLines:
        words = self._words
        rows, lines, states = int(words[_ROWS]), int(words[_LINES]), int(words[_STATES])
        bounds = np.zeros(self._tables + 1, np.int64)
        np.cumsum(words[_COUNTS : _COUNTS + self._tables], out=bounds[1:])
        lines_at = self._data_offset + aligned(8 * rows)
        states_at = lines_at + aligned(4 * lines)
        return OldLines(
            self._file.array(np.int64, self._data_offset, rows),
            bounds,
            self._file.array(np.float32, lines_at, lines),
            self._file.array(np.float32, states_at, states),
        )
