"""Where a worker with direct access leaves a push for the dense owner: the gradients, and the message about them.

A message may be lost with the worker that sent it. What lies here is not: when the worker has died, the dense owner
takes from here what had been released and never came.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.files import MappedFile
from elastichost.arena.layout import MAILBOX_HEAD_BYTES
from elastichost.arena.words import announce, load_word
from elastichost.errors import ArenaError

__all__ = ["Mailbox"]

_INCARNATION, _SEQUENCE, _LENGTH, _WORDS = range(4)


class Mailbox:
    """One half of a worker's mailbox. `vector`: float32 [elements], the pushed vector."""

    def __init__(self, file: MappedFile, offset: int, elements: int) -> None:
        self._words: npt.NDArray[np.int64] = file.array(np.int64, offset, _WORDS)
        self._content: npt.NDArray[np.uint8] = file.array(
            np.uint8, offset + 8 * _WORDS, MAILBOX_HEAD_BYTES - 8 * _WORDS
        )
        self.vector: npt.NDArray[np.float32] = file.array(np.float32, offset + MAILBOX_HEAD_BYTES, elements)

    def post(self, incarnation: int, sequence: int, message: bytes) -> None:
        """Releases the vector as this push of this incarnation. Raises ArenaError when the message is too long."""
        if len(message) > len(self._content):
            raise ArenaError(f"a message of {len(message)} bytes; a mailbox has room for {len(self._content)}")
        announce(self._words, _SEQUENCE, 0)  # whoever is killed from here to the last line has released nothing
        self._content[: len(message)] = np.frombuffer(message, np.uint8)
        self._words[_INCARNATION], self._words[_LENGTH] = incarnation, len(message)
        announce(self._words, _SEQUENCE, sequence)

    def posted(self, incarnation: int) -> tuple[int, bytes] | None:
        """(sequence, message) of what this incarnation released last. The vector is that one's until the incarnation
        has released another, or begun to write it."""
        sequence = int(load_word(self._words, _SEQUENCE))  # before the rest: what it stands for was written before it
        length = int(self._words[_LENGTH])
        if sequence <= 0 or int(self._words[_INCARNATION]) != incarnation:
            return None
        return sequence, self._content[:length].tobytes()
