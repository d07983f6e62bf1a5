"""The supervisor's replica of the arena of another machine. The supervisor reads in it what the PS there have written,
and writes the words that they read."""

from __future__ import annotations

import numpy as np

from elastichost.arena.arena import Arena
from elastichost.arena.replica import ChangedWords, Changes, set_words
from elastichost.arena.watermarks import Watermarks
from elastichost.supervisor.remote.messages import WordsChangedMsg
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher

__all__ = ["ArenaReplica"]


class ArenaReplica:
    """The replica of one host's arena. Implements `supervisor.memory.gauge.ArenaUse`.

    arena: an arena on this machine without rows, whose bucket headers, memory board and watermarks are kept equal to
    those of the host's arena.
    """

    def __init__(self, arena: Arena, launcher: RemoteLauncher) -> None:
        self.arena, self._launcher = arena, launcher
        self._headers = np.ones(len(arena.control), np.bool_)  # all of these words are written on the host
        self._of_servers = arena.board.of_servers
        self._watermarks = Watermarks(arena.directory)
        self._begun = np.ones(len(self._watermarks.words), np.bool_)  # so are all of these
        self._mine = ChangedWords(arena.board.words, ~self._of_servers)
        self.used_bytes = self.index_bytes = 0
        self.free_bytes = arena.layout.memory_bytes
        self.has_rows = False  # the replica has none
        self.is_in_memory = True  # so the budget, which comes from the memory of its host, limits it
        launcher.on_words = self._hear

    def _hear(self, said: WordsChangedMsg) -> None:
        """Takes words and sizes of the host's arena. One message has both, and the sizes were measured after the words
        were read, as `arena.memory_board` requires. Raises ProtocolError."""
        set_words(self.arena.board.words, self._of_servers, Changes.unpacked(said.board_positions, said.board_values))
        set_words(self.arena.control, self._headers, Changes.unpacked(said.header_positions, said.header_values))
        set_words(self._watermarks.words, self._begun, Changes.unpacked(said.begun_positions, said.begun_values))
        self.used_bytes, self.index_bytes, self.free_bytes = said.used_bytes, said.index_bytes, said.free_bytes

    def tell(self) -> None:
        """Sends the host the words that the supervisor has written since the last call."""
        changes = self._mine.take()
        if len(changes):
            self._launcher.set_words(*changes.packed())
