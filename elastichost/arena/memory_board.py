"""What the supervisor allows of memory and what PS have taken of it: a file of words in the arena.

The supervisor *grants* every PS a number of bytes, counted since the arena was made; a PS looks at its grant before it
allocates, and counts what it took. Nobody waits for anybody: each word has one writer, and is one aligned store.

Why that holds a budget: a PS notes what it took after it has taken it, and the supervisor reads what was taken before
it measures what is used. So `used + sum(granted - taken)` is never less than what there can be before the next grant;
whatever is granted beyond is room that was measured. A grant may be taken back, too: a PS that is just between its look
and its allocation then exceeds the budget by that one allocation; so does one that is killed between its allocation and
its count, until the next measurement.

Beside the grants stand the words that say which rows are kept: they outlive a PS as the rows do.
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
_LINE = 8  # words of a cache line: what the supervisor writes and what a PS writes never share one
# Of the arena, by the supervisor.
_NOTES_SEEN, _LEAVES_OUT = range(2)
# Of a PS, by the supervisor.
_GRANTED, _SPARE = range(2)
# Of a PS, by itself.
_TAKEN, _WANTED, _REFUSED, _COPIES, _EVICTED, _LEFT_OUT, _ROUNDS = range(_LINE, _LINE + 7)
_SERVER_WORDS = 2 * _LINE
_FIRST_SERVER = _LINE
_FIRST_TABLE = _FIRST_SERVER + MAX_SERVERS * _SERVER_WORDS
# Of a table, by the supervisor.
_HORIZON, _ADMIT_AFTER = range(2)
_TABLE_WORDS = 2
_NO_LIMIT = 1 << 62
_LOOK_EVERY_S = 0.002
# Whoever waits asks again, more often than the supervisor looks: a want is granted over several of its looks.
_ASK_EVERY_S = 0.02
# What cannot be put off (a bucket that is taken over, a push) waits so long for a grant, less than what counts as hung.
PATIENCE_S = 2.0


class ServerWords:
    """The words of one PS, whichever incarnation: its successor goes on counting."""

    def __init__(self, words: Int64) -> None:
        self._words = words

    def _read(self, word: int) -> int:
        return int(load_word(self._words, word))

    def _write(self, word: int, value: int) -> None:
        announce(self._words, word, value)

    # --- by the supervisor --------------------------------------------------------------------------------------

    @property
    def granted(self) -> int:
        """Bytes it may have taken in all."""
        return self._read(_GRANTED)

    @property
    def spare(self) -> int:
        """Bytes beyond, for what passes: index generations under construction, pushes that wait."""
        return self._read(_SPARE)

    def grant(self, granted_bytes: int, spare_bytes: int) -> None:
        """Both may be less than before."""
        self._write(_SPARE, spare_bytes)
        self._write(_GRANTED, granted_bytes)

    # --- by the PS ----------------------------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """Bytes it has taken since the arena was made; what was given back is not subtracted."""
        return self._read(_TAKEN)

    def note_taken(self, size_bytes: int) -> None:
        """So many more, just now."""
        self._write(_TAKEN, self.taken + size_bytes)

    @property
    def wanted(self) -> int:
        """Bytes that it was refused last."""
        return self._read(_WANTED)

    @property
    def refused(self) -> int:
        """How often it was refused something."""
        return self._read(_REFUSED)

    def note_refused(self, size_bytes: int) -> None:
        self._write(_WANTED, size_bytes)
        self._write(_REFUSED, self.refused + 1)

    @property
    def copies(self) -> int:
        """Bytes that it keeps for the copies of checkpoints, in shared pages of its own."""
        return self._read(_COPIES)

    def note_copies(self, size_bytes: int) -> None:
        self._write(_COPIES, size_bytes)

    @property
    def evicted(self) -> int:
        """Rows it has dropped."""
        return self._read(_EVICTED)

    @property
    def rounds(self) -> int:
        """Rounds of eviction, each of a table."""
        return self._read(_ROUNDS)

    def note_evicted(self, rows: int) -> None:
        """After a round."""
        self._write(_EVICTED, self.evicted + rows)
        self._write(_ROUNDS, self.rounds + 1)

    @property
    def left_out(self) -> int:
        """Sightings of ids that got no row because there was no memory for it."""
        return self._read(_LEFT_OUT)

    def note_left_out(self, ids: int) -> None:
        self._write(_LEFT_OUT, self.left_out + ids)


class MemoryBoard:
    """The file of one arena."""

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
        """Of an arena that could not be made; there may be none."""
        (arena_directory / FILE_NAME).unlink(missing_ok=True)

    def server(self, index: int) -> ServerWords:
        first = _FIRST_SERVER + index * _SERVER_WORDS
        return ServerWords(self._words[first : first + _SERVER_WORDS])

    def allowance(self, index: int) -> Allowance:
        """For the PS of this index."""
        return Allowance(self.server(index))

    def begin_anew(self, *, is_limited: bool) -> None:
        """By a supervisor, before it has started a PS: nothing is granted, or anything is."""
        for index in range(MAX_SERVERS):
            words = self.server(index)
            words.grant(words.taken if is_limited else _NO_LIMIT, 0)

    # --- for a double on another machine ----------------------------------------------------------------------

    @property
    def words(self) -> Int64:
        """int64 [n], all of them: whoever writes there keeps to what is its own."""
        return self._words

    @property
    def of_servers(self) -> npt.NDArray[np.bool_]:
        """bool [n]: those that PS write. The others are the supervisor's."""
        mask = np.zeros(len(self._words), np.bool_)
        lines = mask[_FIRST_SERVER:_FIRST_TABLE].reshape(MAX_SERVERS, _SERVER_WORDS)
        lines[:, _LINE:] = True
        return mask

    # --- which rows are kept ----------------------------------------------------------------------------------

    @property
    def notes_seen(self) -> bool:
        """Whether sightings are noted of every dynamic table, not only of those that evict by the job file."""
        return bool(load_word(self._words, _NOTES_SEEN))

    def note_seen(self) -> None:
        """From now on, and for as long as the arena lives: what was stamped late must be expected from now on."""
        announce(self._words, _NOTES_SEEN, 1)

    @property
    def leaves_out(self) -> bool:
        """Whether new ids for which there is no memory go without a row instead of being waited for."""
        return bool(load_word(self._words, _LEAVES_OUT))

    def leave_out(self, *, is_full: bool) -> None:
        announce(self._words, _LEAVES_OUT, int(is_full))

    def horizon(self, table: int) -> int:
        """Rows unseen for so many samples are dropped; 0: the job file alone says so."""
        return int(load_word(self._words, self._of_table(table) + _HORIZON))

    def set_horizon(self, table: int, samples: int) -> None:
        announce(self._words, self._of_table(table) + _HORIZON, samples)

    def admit_after(self, table: int) -> int:
        """An id gets its row at this sighting at the earliest; 0: the job file alone says so."""
        return int(load_word(self._words, self._of_table(table) + _ADMIT_AFTER))

    def set_admit_after(self, table: int, sightings: int) -> None:
        announce(self._words, self._of_table(table) + _ADMIT_AFTER, sightings)

    def _of_table(self, table: int) -> int:
        if not 0 <= table < self._tables:
            raise IndexError(f"table {table} of {self._tables}")
        return _FIRST_TABLE + table * _TABLE_WORDS

    def close(self) -> None:
        self._words = np.zeros(0, np.int64)
        self._file.close()


class Allowance:
    """What one process may allocate in an arena: as much as was granted to the PS it is, or without words anything."""

    def __init__(self, server: ServerWords | None = None) -> None:
        self._server = server

    def require(self, size_bytes: int, purpose: str, *, is_spare: bool = False, patience_s: float = 0.0) -> None:
        """Returns when so many bytes may be taken. `is_spare`: they may come from what is spared for passing needs.

        Waits for a grant for at most `patience_s`. Raises MemoryBudgetError naming `purpose` and bytes.
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
                    f"{purpose} needs {size_bytes} more bytes, which the job's memory does not allow now",
                    hint="raise resources.memory, set evict_after_samples, or raise admit_after",
                )
            time.sleep(_LOOK_EVERY_S)

    def allows(self, size_bytes: int, *, is_spare: bool = False) -> bool:
        """Whether so much may be taken now."""
        server = self._server
        if server is None or size_bytes <= 0:
            return True
        return server.taken + size_bytes <= server.granted + (server.spare if is_spare else 0)

    def refused(self, size_bytes: int, error: ArenaFullError) -> ArenaFullError:
        """What to raise when the file system had no room for so much, although it was granted: somebody else has filled
        it. Told to the supervisor as any other want."""
        if self._server is None:
            return error
        self._server.note_refused(size_bytes)
        return MemoryBudgetError(error.message, hint=error.hint)

    def spend(self, size_bytes: int) -> None:
        """So many bytes were allocated just now."""
        if self._server is not None:
            self._server.note_taken(size_bytes)

    def note_left_out(self, ids: int) -> None:
        """So many sighted ids got no row."""
        if self._server is not None and ids:
            self._server.note_left_out(ids)

    def note_evicted(self, rows: int) -> None:
        """A round of eviction has dropped so many."""
        if self._server is not None:
            self._server.note_evicted(rows)

    def note_copies(self, size_bytes: int) -> None:
        """So much memory is kept for the copies of checkpoints."""
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
        """`file.allocate`, when it is allowed. Raises MemoryBudgetError, and without words ArenaFullError."""
        size_bytes = pages_bytes(offset_bytes, length_bytes)
        self.require(size_bytes, purpose, is_spare=is_spare, patience_s=patience_s)
        try:
            file.allocate(offset_bytes, length_bytes, purpose)
        except ArenaFullError as error:
            raise self.refused(size_bytes, error) from error
        self.spend(size_bytes)


UNLIMITED = Allowance()


def pages_bytes(offset_bytes: int, length_bytes: int) -> int:
    """Of all pages that a range touches."""
    if length_bytes <= 0:
        return 0
    return (-(-(offset_bytes + length_bytes) // PAGE_BYTES) - offset_bytes // PAGE_BYTES) * PAGE_BYTES


def _bytes(tables: int) -> int:
    words = _FIRST_TABLE + tables * _TABLE_WORDS
    return -(-8 * words // PAGE_BYTES) * PAGE_BYTES
