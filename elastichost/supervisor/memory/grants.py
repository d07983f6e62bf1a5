"""Measures one host's memory and grants its PS what is left of the budget, many times a second.

Nothing may be taken for rows without what follows from it: an index grows with them, and a checkpoint copies them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.least_room import SPARE_BYTES
from elastichost.supervisor.memory.gauge import MemoryGauge, Reading, RowCosts
from elastichost.supervisor.memory.memory_shares import ServerShare, Shares, share_out
from elastichost.tuner.memory.facts import HostMemorySample

__all__ = ["NO_LIMIT", "Granter", "HostFacts"]

NO_LIMIT = 1 << 62  # of rows that lie on a disk
COPY_ROOM = 1.13  # what is reserved for copies is cut into eight pieces, and a little of each stays empty


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One measurement. private_bytes: of the processes, without what is kept for copies; copies_bytes: that, or what
    checkpoints will need; left_bytes: of the budget, or of the file system of the arena, when all that is to come of
    what is there has come; files_free_bytes: of that file system now; is_files: it limits the rows, not the budget."""

    host: int
    budget_bytes: int
    reading: Reading
    private_bytes: int
    copies_bytes: int
    left_bytes: int
    shares: Shares
    files_free_bytes: int = 0
    is_files: bool = False


class Granter:
    """budget_bytes: of this host. costs: of the model's rows."""

    def __init__(self, gauge: MemoryGauge, costs: RowCosts, budget_bytes: int) -> None:
        self.gauge, self.board = gauge, gauge.arena.board
        self.budget_bytes = budget_bytes
        self._costs = costs
        is_dynamic = np.array([table.is_dynamic for table in gauge.arena.model.tables])
        self.is_dynamic: npt.NDArray[np.bool_] = is_dynamic
        # Bytes that follow from one that is taken for rows, itself included.
        self._factor = float((costs.all[is_dynamic] / costs.place[is_dynamic]).max(initial=1.0))
        # Likewise in the arena's files: copies for checkpoints are no part of them.
        in_files = costs.place + costs.index
        self._files_factor = float((in_files[is_dynamic] / costs.place[is_dynamic]).max(initial=1.0))
        self._refused: dict[int, int] = {}

    def turn(self, servers: Iterable[int], private_bytes: int, own: npt.NDArray[np.bool_] | None = None) -> HostFacts:
        """Measures, and grants. servers: PS of this host; own: see `MemoryGauge.read`."""
        # What was taken is read before what is used is measured: see `arena.memory_board`.
        before = [self._share(server) for server in servers]
        reading = self.gauge.read(own)
        to_copy = int(COPY_ROOM * float((reading.allocated * self._costs.copy).sum()))
        copies = max(to_copy, sum(self.board.server(share.server).copies for share in before))
        spare = max(0, reading.index_peak_bytes - reading.index_bytes) + SPARE_BYTES * len(before)
        left = self.budget_bytes - reading.used_bytes - private_bytes - copies - spare
        files_free = self.gauge.free_bytes
        files_left = files_free - spare
        room = min(int(left / self._factor), int(files_left / self._files_factor))
        is_files = files_left / self._files_factor < left / self._factor
        shares = share_out(room, before) if before else Shares({})
        for server, granted in shares.granted.items():
            self.board.server(server).grant(granted, spare // len(before))
        left = min(left, files_left)
        facts = (self.gauge.host, self.budget_bytes, reading, private_bytes, copies, left, shares)
        return HostFacts(*facts, files_free_bytes=files_free, is_files=is_files)

    def lend(self, budget_bytes: int) -> None:
        """Another budget; rows on a disk have none."""
        if self.budget_bytes != NO_LIMIT:
            self.budget_bytes = budget_bytes

    def take_back(self, servers: Iterable[int]) -> None:
        """What was granted to PS that are no more."""
        for server in servers:
            words = self.board.server(server)
            words.grant(min(words.granted, words.taken), 0)

    def _share(self, server: int) -> ServerShare:
        words = self.board.server(server)
        taken, refused = words.taken, words.refused
        wanted = words.wanted if refused != self._refused.get(server, refused) else 0
        self._refused[server] = refused
        return ServerShare(server, words.granted, taken, wanted)

    def look(self, facts: HostFacts, share: float, *, may_take: bool) -> HostMemorySample:
        """What the tuner is told: with indexes as large as they become. share: of the rows that come."""
        reading, is_dynamic = facts.reading, self.is_dynamic
        indexes = int((reading.live * self._costs.index).sum())
        used = reading.used_bytes - reading.index_bytes + indexes + facts.private_bytes + facts.copies_bytes
        places = float((reading.places * self._costs.all)[is_dynamic].sum())
        budget = min(self.budget_bytes, used + self.gauge.free_bytes)
        return HostMemorySample(facts.host, budget, used, places, share, may_take)
