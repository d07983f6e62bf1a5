"""Row pushes that wait for the commit of their batch. Each PS has one file for each stager.

A *stager* has at most one staged push at a PS. It is a worker, identified by its index, or in sync mode a micro-batch,
identified by its number. The *stamp* of a push contains the incarnation and the sequence, so the pushes of a stager are
ordered.

    word 0                stamp; 0: no complete push
    words 1 to 3          epoch of the shard map, number of rows, number of gradient floats
    word 4                scale of the learning rate (float64)
    word 5                bytes that are allocated from the beginning of the file on
    words 8 to 7 + T      rows of each of the T tables
    then, each aligned    rows int64 [n], gradients float32

`write` stores stamp 0, then the push, then the stamp. So a process that reads a stamp other than 0 finds the complete
push. If the PS is killed, its successor finds every complete push in the files; a push whose writing was interrupted
has stamp 0 and was not acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.arena.files import ALIGNMENT_BYTES, MappedFile, aligned
from elastichost.arena.memory_board import UNLIMITED, Allowance
from elastichost.arena.recovery.reserve import reserve
from elastichost.arena.words import announce, load_word
from elastichost.errors import ArenaError

__all__ = ["MAX_STAGERS", "StagedPush", "StagingArea", "stamp_incarnation", "stamp_of", "stamp_sequence"]

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

MAX_STAGERS = 256
MAX_PUSH_BYTES = 1 << 32  # virtual: the files are sparse
_SEQUENCE_BITS = 40
_STAMP, _EPOCH, _ROWS, _FLOATS = range(4)
_SCALE = 4  # its 8 bytes are a float64
_RESERVED = 5
_COUNTS = 8  # first of one word for each table


def stamp_of(incarnation: int, sequence: int) -> int:
    """The stamp of a push. It is larger for a later incarnation, and for a later batch of the same incarnation. 0 means
    that there is no push."""
    return (incarnation << _SEQUENCE_BITS) | sequence


def stamp_incarnation(stamp: int) -> int:
    return stamp >> _SEQUENCE_BITS


def stamp_sequence(stamp: int) -> int:
    return stamp & ((1 << _SEQUENCE_BITS) - 1)


@dataclass(frozen=True, slots=True)
class StagedPush:
    """A staged push: gradients of distinct rows, as `RowLines.push` takes them. The arrays `rows` and `gradients` are
    views of the file.

    rows: int64 [n]; the rows of table t are rows[bounds[t] : bounds[t + 1]]. bounds: int64 [T + 1]. gradients: float32,
    flat; the lines of the rows.
    """

    stager: int
    stamp: int
    shard_map_epoch: int
    learning_rate_scale: float
    rows: Int64
    bounds: Int64
    gradients: Float32


class StagingArea:
    """The staged pushes of one PS, in files of the arena's directory. Opening it finds the pushes that a predecessor of
    the PS left."""

    def __init__(self, directory: Path, server: int, tables: int, allowance: Allowance = UNLIMITED) -> None:
        self._directory, self._server, self._tables, self._allowance = directory, server, tables, allowance
        self._data_offset = aligned(8 * (_COUNTS + tables))
        self._slots: dict[int, _Slot] = {}
        for path in sorted(directory.glob(f"staged-{server}-*")):
            self._slot(int(path.name.rpartition("-")[2]))

    def write(
        self,
        stager: int,
        stamp: int,
        shard_map_epoch: int,
        learning_rate_scale: float,
        rows: Int64,
        bounds: Int64,
        gradients: Float32,
    ) -> None:
        """Stages a push, which replaces the stager's previous one. rows, bounds and gradients are as in `StagedPush`.
        Raises ArenaFullError, and ArenaError for a push of more than 4 GiB."""
        slot, needed_bytes = self._slot(stager), rows.nbytes + ALIGNMENT_BYTES + gradients.nbytes
        if needed_bytes > MAX_PUSH_BYTES:
            raise ArenaError(
                f"a push has {needed_bytes} bytes; at most {MAX_PUSH_BYTES} can be staged", hint="use smaller batches"
            )
        announce(slot.words, _STAMP, 0)
        slot.reserve(self._data_offset + needed_bytes)
        slot.words[_EPOCH], slot.words[_ROWS], slot.words[_FLOATS] = shard_map_epoch, len(rows), len(gradients)
        slot.words[_SCALE : _SCALE + 1].view(np.float64)[0] = learning_rate_scale
        slot.words[_COUNTS : _COUNTS + self._tables] = np.diff(bounds)
        target_rows, target_gradients = self._arrays(slot)
        target_rows[:] = rows
        target_gradients[:] = gradients
        announce(slot.words, _STAMP, stamp)

    def read(self, stager: int) -> StagedPush | None:
        """The stager's staged push, or None."""
        stamp = self.stamp(stager)
        if not stamp:
            return None
        slot = self._slots[stager]
        bounds = np.zeros(self._tables + 1, np.int64)
        np.cumsum(slot.words[_COUNTS : _COUNTS + self._tables], out=bounds[1:])
        rows, gradients = self._arrays(slot)
        scale = float(slot.words[_SCALE : _SCALE + 1].view(np.float64)[0])
        return StagedPush(stager, stamp, int(slot.words[_EPOCH]), scale, rows, bounds, gradients)

    def stamp(self, stager: int) -> int:
        """The stamp of the stager's staged push; 0 if it has none."""
        slot = self._slots.get(stager)
        return 0 if slot is None else int(load_word(slot.words, _STAMP))

    def shard_map_epoch(self, stager: int) -> int:
        """The epoch of the shard map by which the stager's staged push was split; 0 if it has no push."""
        return int(self._slots[stager].words[_EPOCH]) if self.stamp(stager) else 0

    def drop(self, stager: int) -> None:
        """Drops the stager's staged push. Its memory is kept for the next one."""
        if self.stamp(stager):
            announce(self._slots[stager].words, _STAMP, 0)

    def waiting(self) -> tuple[int, ...]:
        """The stagers that have a staged push, in ascending order."""
        return tuple(stager for stager in sorted(self._slots) if self.stamp(stager))

    def close(self) -> None:
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

    def _slot(self, stager: int) -> _Slot:
        known = self._slots.get(stager)
        if known is None:
            if not 0 <= stager < MAX_STAGERS:
                raise ArenaError(f"stager {stager} is out of range (0 to {MAX_STAGERS - 1})")
            path = self._directory / f"staged-{self._server}-{stager}"
            known = self._slots[stager] = _Slot(path, self._data_offset, self._allowance)
        return known

    def _arrays(self, slot: _Slot) -> tuple[Int64, Float32]:
        rows, floats = int(slot.words[_ROWS]), int(slot.words[_FLOATS])
        second = self._data_offset + aligned(8 * rows)
        return slot.file.array(np.int64, self._data_offset, rows), slot.file.array(np.float32, second, floats)


class _Slot:
    """The file of one stager. Its reserved memory never shrinks."""

    def __init__(self, path: Path, header_bytes: int, allowance: Allowance) -> None:
        self._allowance = allowance
        self.file = MappedFile.attach_or_create(path, header_bytes + MAX_PUSH_BYTES)
        self.file.allocate(0, header_bytes, "the header of a staged push")
        self.words: Int64 = self.file.array(np.int64, 0, header_bytes // 8)
        self.reserve(header_bytes)

    def reserve(self, size_bytes: int) -> None:
        """Allocates at least the first `size_bytes` bytes. Raises ArenaFullError."""
        reserve(self.file, self.words, _RESERVED, size_bytes, self._allowance, "a staged push")

    def close(self) -> None:
        self.words = np.zeros(0, np.int64)
        self.file.close()
