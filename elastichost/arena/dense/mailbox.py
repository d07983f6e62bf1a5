"""The place in the arena where a worker with direct access leaves a push for the dense owner: gradients and message.

A message on a socket may be lost when the worker that sent it dies. A push in the mailbox is not lost: after the death
of the worker the dense owner reads the mailbox, and commits released pushes of which no message arrived. A worker has
two mailboxes (halves), so it can fill one while the dense owner reads the other.

    word 0 incarnation   word 1 sequence (0: nothing is released)   word 2 bytes of the message
    then the message, up to byte MAILBOX_HEAD_BYTES; then float32 [elements], the vector
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
    """One half of a worker's mailbox. vector: float32 [elements], into which the worker writes the vector to push."""

    def __init__(self, file: MappedFile, offset: int, elements: int) -> None:
        self._words: npt.NDArray[np.int64] = file.array(np.int64, offset, _WORDS)
        self._content: npt.NDArray[np.uint8] = file.array(
            np.uint8, offset + 8 * _WORDS, MAILBOX_HEAD_BYTES - 8 * _WORDS
        )
        self.vector: npt.NDArray[np.float32] = file.array(np.float32, offset + MAILBOX_HEAD_BYTES, elements)

    def post(self, incarnation: int, sequence: int, message: bytes) -> None:
        """Releases the vector and the message as the push `sequence` of this incarnation. Raises ArenaError when the
        message is too long."""
        if len(message) > len(self._content):
            raise ArenaError(f"the message has {len(message)} bytes; a mailbox has room for {len(self._content)}")
        announce(self._words, _SEQUENCE, 0)  # a worker killed between here and the last line has released nothing
        self._content[: len(message)] = np.frombuffer(message, np.uint8)
        self._words[_INCARNATION], self._words[_LENGTH] = incarnation, len(message)
        announce(self._words, _SEQUENCE, sequence)

    def posted(self, incarnation: int) -> tuple[int, bytes] | None:
        """(sequence, message) of the push that this incarnation released last; None if it released none. The vector
        belongs to this push until the worker begins to write the next one."""
        sequence = int(load_word(self._words, _SEQUENCE))  # loaded first: the push was written before its sequence
        length = int(self._words[_LENGTH])
        if sequence <= 0 or int(self._words[_INCARNATION]) != incarnation:
            return None
        return sequence, self._content[:length].tobytes()
