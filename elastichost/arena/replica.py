"""How a replica of another machine's arena is kept equal to it: each side sends its changed words to the other.

A replica has the bucket headers, the memory board and the watermarks of an arena, but no rows.
Each word has one writer: a PS writes its words in the arena, the supervisor writes its words in the replica. The agent
of the other machine sends the words that changed in the arena, the supervisor sends the words that changed in the
replica, and the receiver sets each word with one aligned store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.words import announce
from elastichost.errors import ProtocolError

__all__ = ["ChangedWords", "Changes", "set_words"]

Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changed words: positions int64 [n] in the array, ascending, and values int64 [n]."""

    positions: Int64
    values: Int64

    def packed(self) -> tuple[bytes, bytes]:
        """The positions as int32 and the values as int64, little-endian."""
        return self.positions.astype("<i4").tobytes(), self.values.astype("<i8").tobytes()

    @classmethod
    def unpacked(cls, positions: bytes, values: bytes) -> Changes:
        """The reverse of `packed`. Raises ProtocolError when the number of positions and of values differs."""
        if len(positions) % 4 or 2 * len(positions) != len(values):
            raise ProtocolError(
                f"{len(positions)} bytes of positions (4 each) do not match {len(values)} bytes of values (8 each)"
            )
        return cls(np.frombuffer(positions, "<i4").astype(np.int64), np.frombuffer(values, "<i8").astype(np.int64))

    def __len__(self) -> int:
        return len(self.positions)


class ChangedWords:
    """Finds the words that changed since the last call of `take`.

    words: int64 [n], which other processes write meanwhile. mask: bool [n], the words to observe. The first call gives
    all observed words that are not zero.
    """

    def __init__(self, words: Int64, mask: Mask) -> None:
        self._words = words
        self._positions = np.flatnonzero(mask)
        self._told = np.zeros(len(self._positions), np.int64)

    def take(self) -> Changes:
        """The observed words that changed since the last call, with their present values."""
        present = self._words[self._positions]
        changed = np.flatnonzero(present != self._told)
        self._told[changed] = present[changed]
        return Changes(self._positions[changed], present[changed])


def set_words(words: Int64, mask: Mask, changes: Changes) -> None:
    """Sets received words. mask: bool [n], the words that the sender may write. Raises ProtocolError, and sets none,
    when a position is outside the array or not in the mask."""
    positions = changes.positions
    if len(positions) and (positions.min() < 0 or positions.max() >= len(words) or not mask[positions].all()):
        raise ProtocolError(f"at least one of {len(positions)} received words is not one that the sender may write")
    for position, value in zip(positions.tolist(), changes.values.tolist(), strict=True):
        announce(words, position, value)
