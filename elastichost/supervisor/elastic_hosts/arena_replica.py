"""Doubles of arenas on other machines: what the supervisor sees of them, and what it writes for their PS."""

from __future__ import annotations

import numpy as np

from elastichost.arena.arena import Arena
from elastichost.arena.replica import ChangedWords, Changes, set_words
from elastichost.arena.watermarks import Watermarks
from elastichost.supervisor.remote.messages import WordsChangedMsg
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher

__all__ = ["ArenaReplica"]


class ArenaReplica:
    """Of one host. arena: has headers, memory board and watermarks of the other, no rows. `memory_gauge.ArenaUse`."""

    def __init__(self, arena: Arena, launcher: RemoteLauncher) -> None:
        self.arena, self._launcher = arena, launcher
        self._headers = np.ones(len(arena.control), np.bool_)  # all of them are written there
        self._of_servers = arena.board.of_servers
        self._watermarks = Watermarks(arena.directory)
        self._begun = np.ones(len(self._watermarks.words), np.bool_)  # likewise
        self._mine = ChangedWords(arena.board.words, ~self._of_servers)
        self.used_bytes = self.index_bytes = 0
        self.free_bytes = arena.layout.memory_bytes
        self.has_rows = False  # here
        self.is_in_memory = True  # its agent told what it may use
        launcher.on_words = self._hear

    def _hear(self, said: WordsChangedMsg) -> None:
        """Raises ProtocolError. What was taken comes with what was used after it had been read: both at once."""
        set_words(self.arena.board.words, self._of_servers, Changes.unpacked(said.board_positions, said.board_values))
        set_words(self.arena.control, self._headers, Changes.unpacked(said.header_positions, said.header_values))
        set_words(self._watermarks.words, self._begun, Changes.unpacked(said.begun_positions, said.begun_values))
        self.used_bytes, self.index_bytes, self.free_bytes = said.used_bytes, said.index_bytes, said.free_bytes

    def tell(self) -> None:
        """What the supervisor has written since the last call goes there."""
        changes = self._mine.take()
        if len(changes):
            self._launcher.set_words(*changes.packed())
