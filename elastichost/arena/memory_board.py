"""The memory that the supervisor grants to each PS, and the memory that the PS took: a file of words in the arena.

The supervisor *grants* each PS a number of bytes, counted from the creation of the arena. A PS reads its grant before
it allocates, and afterwards adds the allocated bytes to its `taken` word. Each word has one writer and is written with
one aligned store, so no process waits for another.

Why this holds the budget: a PS writes `taken` after the allocation, and the supervisor reads `taken` before it measures
the used memory. So `used + sum(granted - taken)` is an upper bound of the memory that can be in use before the next
grant, and the supervisor grants only memory beyond that bound. There are two exceptions, each of one allocation. The
supervisor may reduce a grant while a PS is between its check and its allocation: the PS then exceeds the budget by that
allocation. A PS may be killed between its allocation and its count: the budget is exceeded until the next measurement.

The file also holds the words that decide which rows are kept. They outlive a PS, as its rows do.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.files import MappedFile
from elastichost.arena.words import announce, load_word
from elastichost.errors import ArenaFullError, MemoryBudgetError
from elastichost.host.machine import PAGE_BYTES
from elastichost.sharding import MAX_SERVERS

__all__ = ["PATIENCE_S", "UNLIMITED", "Allowance", "MemoryBoard", "ServerWords", "pages_bytes"]

Int64 = npt.NDArray[np.int64]

FILE_NAME = "memory"
_LINE = 8  # words of a cache line: words of the supervisor and words of a PS never share a line
# Words of the arena, written by the supervisor.
_NOTES_SEEN, _LEAVES_OUT = range(2)
# Words of a PS, written by the supervisor.
_GRANTED, _SPARE = range(2)
# Words of a PS, written by the PS.
_TAKEN, _WANTED, _REFUSED, _COPIES, _EVICTED, _LEFT_OUT, _ROUNDS = range(_LINE, _LINE + 7)
_SERVER_WORDS = 2 * _LINE
_FIRST_SERVER = _LINE
_FIRST_TABLE = _FIRST_SERVER + MAX_SERVERS * _SERVER_WORDS
# Words of a table, written by the supervisor.
_HORIZON, _ADMIT_AFTER = range(2)
_TABLE_WORDS = 2
_NO_LIMIT = 1 << 62
_LOOK_EVERY_S = 0.002
# A waiting PS repeats its request this often, which is more often than the supervisor reads the board: the supervisor
# may need several turns to grant a request.
_ASK_EVERY_S = 0.02
# How long an allocation that cannot be postponed (a bucket that is taken over, a push) waits for a grant. It is shorter
# than the silence after which a process counts as hung.
PATIENCE_S = 2.0


class ServerWords:
    """The words of one PS. They belong to all its incarnations: a successor continues the counts."""

    def __init__(self, words: Int64) -> None:
        self._words = words

    def _read(self, word: int) -> int:
        return int(load_word(self._words, word))

    def _write(self, word: int, value: int) -> None:
        announce(self._words, word, value)

    # --- written by the supervisor ------------------------------------------------------------------------------

    @property
    def granted(self) -> int:
        """Bytes that the PS may have taken in total since the arena was made."""
        return self._read(_GRANTED)

    @property
    def spare(self) -> int:
        """Bytes beyond the grant for temporary needs: index generations under construction, staged pushes."""
        return self._read(_SPARE)

    def grant(self, granted_bytes: int, spare_bytes: int) -> None:
        """Sets both limits, which may be lower than before."""
        self._write(_SPARE, spare_bytes)
        self._write(_GRANTED, granted_bytes)

    # --- written by the PS --------------------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """Bytes that the PS has allocated since the arena was made. Freed bytes are not subtracted."""
        return self._read(_TAKEN)

    def note_taken(self, size_bytes: int) -> None:
        """Adds bytes that the PS has just allocated."""
        self._write(_TAKEN, self.taken + size_bytes)

    @property
    def wanted(self) -> int:
        """Bytes of the PS's last refused request."""
        return self._read(_WANTED)

    @property
    def refused(self) -> int:
        """Number of refused requests of the PS."""
        return self._read(_REFUSED)

    def note_refused(self, size_bytes: int) -> None:
        """Counts a refused request, which the supervisor reads as a request for a larger grant."""
        self._write(_WANTED, size_bytes)
        self._write(_REFUSED, self.refused + 1)

    @property
    def copies(self) -> int:
        """Bytes that the PS keeps for the copies of checkpoints, in its own shared pages outside the arena."""
        return self._read(_COPIES)

    def note_copies(self, size_bytes: int) -> None:
        self._write(_COPIES, size_bytes)

    @property
    def evicted(self) -> int:
        """Rows that the PS has evicted."""
        return self._read(_EVICTED)

    @property
    def rounds(self) -> int:
        """Rounds of eviction; each is of one table."""
        return self._read(_ROUNDS)

    def note_evicted(self, rows: int) -> None:
        """Counts a finished round that evicted `rows` rows."""
        self._write(_EVICTED, self.evicted + rows)
        self._write(_ROUNDS, self.rounds + 1)

    @property
    def left_out(self) -> int:
        """Sightings of ids that got no row because memory was short."""
        return self._read(_LEFT_OUT)

    def note_left_out(self, ids: int) -> None:
        self._write(_LEFT_OUT, self.left_out + ids)


class MemoryBoard:
    """The memory board of one arena: its mapped file of words."""

    def __init__(self, arena_directory: Path, tables: int) -> None:
        self._tables = tables
        self._file = MappedFile.attach(arena_directory / FILE_NAME, _bytes(tables))
        self._words: Int64 = self._file.array(np.int64, 0, _bytes(tables) // 8)

    @staticmethod
    def create(arena_directory: Path, tables: int) -> None:
        """Makes the file of a new arena. Raises ArenaError."""
        file = MappedFile.create(arena_directory / FILE_NAME, _bytes(tables))
        file.allocate(0, _bytes(tables), "the memory words")
        file.close()

    @staticmethod
    def remove(arena_directory: Path) -> None:
        """Removes the file of an arena whose creation failed. The file may be missing."""
        (arena_directory / FILE_NAME).unlink(missing_ok=True)

    def server(self, index: int) -> ServerWords:
        """The words of the PS with this index. Raises IndexError: words beyond the last PS are those of tables."""
        if not 0 <= index < MAX_SERVERS:
            raise IndexError(f"PS {index} is out of range (0 to {MAX_SERVERS - 1})")
        first = _FIRST_SERVER + index * _SERVER_WORDS
        return ServerWords(self._words[first : first + _SERVER_WORDS])

    def allowance(self, index: int) -> Allowance:
        """The allowance of the PS with this index."""
        return Allowance(self.server(index))

    def begin_anew(self, *, is_limited: bool) -> None:
        """Resets the grants. A supervisor calls this before it starts a PS. is_limited: no PS may take any more memory
        until it gets a grant; otherwise memory is unlimited."""
        for index in range(MAX_SERVERS):
            words = self.server(index)
            words.grant(words.taken if is_limited else _NO_LIMIT, 0)

    # --- for a replica on another machine ---------------------------------------------------------------------

    @property
    def words(self) -> Int64:
        """All words, int64 [n]. A caller writes only its own words."""
        return self._words

    @property
    def of_servers(self) -> npt.NDArray[np.bool_]:
        """Mask of the words that PS write, bool [n]. The supervisor writes the others."""
        mask = np.zeros(len(self._words), np.bool_)
        lines = mask[_FIRST_SERVER:_FIRST_TABLE].reshape(MAX_SERVERS, _SERVER_WORDS)
        lines[:, _LINE:] = True
        return mask

    # --- which rows are kept ----------------------------------------------------------------------------------

    @property
    def notes_seen(self) -> bool:
        """Whether workers stamp used rows of all dynamic tables, and not only of those that the job file evicts."""
        return bool(load_word(self._words, _NOTES_SEEN))

    def note_seen(self) -> None:
        """Switches the stamps on for the rest of the arena's life. They are never switched off: a worker may stamp an
        evicted row late, so from now on PS check for that."""
        announce(self._words, _NOTES_SEEN, 1)

    @property
    def leaves_out(self) -> bool:
        """Whether new ids get no row while memory is short. If not, the PS waits for memory."""
        return bool(load_word(self._words, _LEAVES_OUT))

    def leave_out(self, *, is_full: bool) -> None:
        """Sets `leaves_out`."""
        announce(self._words, _LEAVES_OUT, int(is_full))

    def horizon(self, table: int) -> int:
        """Samples without a sighting after which a row of a table is evicted; 0: the job file alone decides."""
        return int(load_word(self._words, self._of_table(table) + _HORIZON))

    def set_horizon(self, table: int, samples: int) -> None:
        announce(self._words, self._of_table(table) + _HORIZON, samples)

    def admit_after(self, table: int) -> int:
        """How often an id has to be seen before it gets a row; 0: the job file alone decides."""
        return int(load_word(self._words, self._of_table(table) + _ADMIT_AFTER))

    def set_admit_after(self, table: int, sightings: int) -> None:
        announce(self._words, self._of_table(table) + _ADMIT_AFTER, sightings)

    def _of_table(self, table: int) -> int:
        if not 0 <= table < self._tables:
            raise IndexError(f"table {table} is out of range (0 to {self._tables - 1})")
        return _FIRST_TABLE + table * _TABLE_WORDS

    def close(self) -> None:
        self._words = np.zeros(0, np.int64)
        self._file.close()


class Allowance:
    """The limit of what one process may allocate in an arena: the grant of a PS, or no limit without `server`."""

    def __init__(self, server: ServerWords | None = None) -> None:
        self._server = server

    def require(self, size_bytes: int, purpose: str, *, is_spare: bool = False, patience_s: float = 0.0) -> None:
        """Returns when `size_bytes` may be taken. is_spare: the need is temporary, so the bytes may come from `spare`.

        Waits at most `patience_s` for a grant. Raises MemoryBudgetError, which names `purpose` and the bytes.
        """
        if self.allows(size_bytes, is_spare=is_spare) or self._server is None:
            return
        self._server.note_refused(size_bytes)
        asked_s = time.monotonic()
        deadline_s = asked_s + patience_s
        while not self.allows(size_bytes, is_spare=is_spare):
            now_s = time.monotonic()
            if now_s - asked_s >= _ASK_EVERY_S:
                self._server.note_refused(size_bytes)
                asked_s = now_s
            if now_s >= deadline_s:
                raise MemoryBudgetError(
                    f"{purpose} needs {size_bytes} more bytes, which exceeds the job's memory budget at present",
                    hint="raise resources.memory, set evict_after_samples, or raise admit_after",
                )
            time.sleep(_LOOK_EVERY_S)

    def allows(self, size_bytes: int, *, is_spare: bool = False) -> bool:
        """Whether `size_bytes` may be taken now."""
        server = self._server
        if server is None or size_bytes <= 0:
            return True
        return server.taken + size_bytes <= server.granted + (server.spare if is_spare else 0)

    def refused(self, size_bytes: int, error: ArenaFullError) -> ArenaFullError:
        """The error to raise when the file system has no room for bytes that were granted, because another program has
        filled it. Counts the bytes as a refused request, so that the supervisor reads them."""
        if self._server is None:
            return error
        self._server.note_refused(size_bytes)
        return MemoryBudgetError(error.message, hint=error.hint)

    def spend(self, size_bytes: int) -> None:
        """Counts bytes that were just allocated."""
        if self._server is not None:
            self._server.note_taken(size_bytes)

    def note_left_out(self, ids: int) -> None:
        """Counts sightings of ids that got no row."""
        if self._server is not None and ids:
            self._server.note_left_out(ids)

    def note_evicted(self, rows: int) -> None:
        """Counts a round of eviction and its evicted rows."""
        if self._server is not None:
            self._server.note_evicted(rows)

    def note_copies(self, size_bytes: int) -> None:
        """Sets how many bytes are kept for the copies of checkpoints."""
        if self._server is not None:
            self._server.note_copies(size_bytes)

    def allocate(
        self,
        file: MappedFile,
        offset_bytes: int,
        length_bytes: int,
        purpose: str,
        *,
        is_spare: bool = False,
        patience_s: float = 0.0,
    ) -> None:
        """Calls `file.allocate` when the allowance permits it, and counts the bytes. Raises MemoryBudgetError; an
        allowance without limit raises ArenaFullError."""
        size_bytes = pages_bytes(offset_bytes, length_bytes)
        self.require(size_bytes, purpose, is_spare=is_spare, patience_s=patience_s)
        try:
            file.allocate(offset_bytes, length_bytes, purpose)
        except ArenaFullError as error:
            raise self.refused(size_bytes, error) from error
        self.spend(size_bytes)


UNLIMITED = Allowance()


def pages_bytes(offset_bytes: int, length_bytes: int) -> int:
    """Bytes of all pages that a range touches."""
    if length_bytes <= 0:
        return 0
    return (-(-(offset_bytes + length_bytes) // PAGE_BYTES) - offset_bytes // PAGE_BYTES) * PAGE_BYTES


def _bytes(tables: int) -> int:
    words = _FIRST_TABLE + tables * _TABLE_WORDS
    return -(-8 * words // PAGE_BYTES) * PAGE_BYTES
