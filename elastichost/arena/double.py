"""What the double of an arena on another machine is kept alike by: words that changed, sent and set.

A double has the bucket headers, the memory board and the watermarks of an arena, and no rows. Each word has one writer:
PS write theirs in the arena, the supervisor its own in the double. Either side sends what has changed of the words that
are written on it, and sets what the other one sent, each with one aligned store.
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
    """positions int64 [n] in the array, ascending; values int64 [n]."""

    positions: Int64
    values: Int64

    def packed(self) -> tuple[bytes, bytes]:
        """int32 positions, int64 values, little-endian."""
        return self.positions.astype("<i4").tobytes(), self.values.astype("<i8").tobytes()

    @classmethod
    def unpacked(cls, positions: bytes, values: bytes) -> Changes:
        """Raises ProtocolError when there are not as many of the one as of the other."""
        if len(positions) % 4 or 2 * len(positions) != len(values):
            raise ProtocolError(f"{len(positions)} bytes of positions come with {len(values)} bytes of values")
        return cls(np.frombuffer(positions, "<i4").astype(np.int64), np.frombuffer(values, "<i8").astype(np.int64))

    def __len__(self) -> int:
        return len(self.positions)


class ChangedWords:
    """words: int64 [n], which others write to meanwhile; mask: bool [n], of them those that are told here. At first
    all that are not zero have changed."""

    def __init__(self, words: Int64, mask: Mask) -> None:
        self._words = words
        self._positions = np.flatnonzero(mask)
        self._told = np.zeros(len(self._positions), np.int64)

    def take(self) -> Changes:
        """Since the last call."""
        present = self._words[self._positions]
        changed = np.flatnonzero(present != self._told)
        self._told[changed] = present[changed]
        return Changes(self._positions[changed], present[changed])


def set_words(words: Int64, mask: Mask, changes: Changes) -> None:
    """mask: bool [n], which the other side may write. Raises ProtocolError when another is among them: none is set
    then."""
    positions = changes.positions
    if len(positions) and (positions.min() < 0 or positions.max() >= len(words) or not mask[positions].all()):
        raise ProtocolError(f"words were sent that are not the sender's to write, of {len(positions)}")
    for position, value in zip(positions.tolist(), changes.values.tolist(), strict=True):
        announce(words, position, value)
