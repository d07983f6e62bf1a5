"""The undo record of a PS: what makes the application of staged pushes all or nothing across a kill.

    begin   the rows that will change and their old lines are written, then `active` is stored
    (rows change)
    finish  `finished` is stored: from here on the change stands; what was applied is noted, `active` ends

A successor that finds `active` without `finished` puts the old lines back (`unfinished` tells them); with `finished`
it notes the stamps again. Both may be repeated, so it may be killed within them as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.files import MappedFile, aligned
from elastichost.arena.memory_board import PATIENCE_S, UNLIMITED, Allowance
from elastichost.arena.recovery.staging import MAX_STAGERS
from elastichost.arena.words import announce, load_word
from elastichost.errors import ArenaError
from elastichost.wire.crash import crash_point

__all__ = ["OldLines", "UndoRecord"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

MAX_RECORD_BYTES = 1 << 35  # virtual: the file is sparse
_ACTIVE, _FINISHED, _ROWS, _LINES, _STATES, _STAMPS = range(6)
_APPLIED = 8  # newest applied stamp of each stager
_STAGERS = _APPLIED + MAX_STAGERS  # the record: who ...
_NEW_STAMPS = _STAGERS + MAX_STAGERS  # ... gets which stamp
_COUNTS = _NEW_STAMPS + MAX_STAGERS  # rows of each table
_GROWTH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class OldLines:
    """Rows int64 [n] (of table t: rows[bounds[t] : bounds[t + 1]]), their lines and their optimizer state, float32
    flat, as `RowLines.save` fills them. The arrays are the file's memory."""

    rows: Int64
    bounds: Int64
    lines: Float32
    states: Float32


class UndoRecord:
    """One PS' record. One application at a time: `begin`, change the rows, `finish`."""

    def __init__(self, directory: Path, server: int, tables: int, allowance: Allowance = UNLIMITED) -> None:
        self._tables, self._allowance = tables, allowance
        self._data_offset = aligned(8 * (_COUNTS + tables))
        self._file = MappedFile.attach_or_create(directory / f"undo-{server}", self._data_offset + MAX_RECORD_BYTES)
        self._file.allocate(0, self._data_offset, "the undo record of a PS")
        self._reserved_bytes = self._data_offset
        self._words: Int64 = self._file.array(np.int64, 0, self._data_offset // 8)

    def applied(self, stager: int) -> int:
        """Stamp of the newest push of this stager that was applied; 0: none."""
        return int(self._words[_APPLIED + stager])

    def begin(self, stamps: Sequence[tuple[int, int]], rows: Int64, bounds: Int64, lines: int, states: int) -> OldLines:
        """The place for the old lines (`lines` and `states` floats), to be filled before `activate`.

        stamps: (stager, stamp) of the pushes that will have been applied. Raises ArenaFullError.
        """
        words = self._words
        if words[_ACTIVE]:
            raise ArenaError("an application of pushes was begun and neither finished nor taken back")
        self._reserve(self._data_offset + aligned(rows.nbytes) + aligned(4 * lines) + 4 * states)
        words[_FINISHED] = 0
        words[_ROWS], words[_LINES], words[_STATES], words[_STAMPS] = len(rows), lines, states, len(stamps)
        words[_COUNTS : _COUNTS + self._tables] = np.diff(bounds)
        for number, (stager, stamp) in enumerate(stamps):
            words[_STAGERS + number], words[_NEW_STAMPS + number] = stager, stamp
        old = self._record()
        old.rows[:] = rows
        return old

    def activate(self) -> None:
        """The old lines are written: rows may change now."""
        announce(self._words, _ACTIVE, 1)

    def finish(self) -> None:
        """All rows have changed."""
        announce(self._words, _FINISHED, 1)
        crash_point("ps.apply.after_finish")
        self._note_stamps()

    def _note_stamps(self) -> None:
        words = self._words
        for number in range(int(words[_STAMPS])):
            words[_APPLIED + words[_STAGERS + number]] = words[_NEW_STAMPS + number]
        announce(words, _ACTIVE, 0)

    def unfinished(self) -> OldLines | None:
        """What a predecessor was killed in: the lines to put back, then call `taken_back`. What it had finished is
        noted by this call, and None is the answer."""
        if not load_word(self._words, _ACTIVE):
            return None
        if load_word(self._words, _FINISHED):
            self._note_stamps()
            return None
        return self._record()

    def taken_back(self) -> None:
        """The old lines are back in their rows."""
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

    def _reserve(self, size_bytes: int) -> None:
        if size_bytes > self._reserved_bytes:
            grown = -(-size_bytes // _GROWTH_BYTES) * _GROWTH_BYTES
            self._allowance.allocate(
                self._file,
                self._reserved_bytes,
                grown - self._reserved_bytes,
                "the undo record of a PS",
                is_spare=True,
                patience_s=PATIENCE_S,
            )
            self._reserved_bytes = grown
