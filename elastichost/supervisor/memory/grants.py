"""Measures the memory of one host, and grants its PS what is left of the budget, many times a second.

A byte for rows is granted only if the bytes that follow from it are left too: the index grows with the rows, and a
checkpoint copies them.
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

NO_LIMIT = 1 << 62  # budget of a host whose rows lie on a disk
COPY_ROOM = 1.13  # bytes reserved for copies / bytes of the copies: each of eight pieces stays partly empty


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One measurement of a host.

    private_bytes: of the processes, without memory for copies. copies_bytes: kept for the copies of checkpoints, or
    needed by the next checkpoint, whichever is larger. left_bytes: what is left of the budget or of the arena's file
    system, whichever is smaller, after everything that the present rows will still need. files_free_bytes: free now in
    that file system. is_files: the file system is the tighter limit of the rows, not the budget.
    """

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
    """Measures one host and grants memory to its PS. costs: of the model's rows. budget_bytes: of this host."""

    def __init__(self, gauge: MemoryGauge, costs: RowCosts, budget_bytes: int) -> None:
        self.gauge, self.board = gauge, gauge.arena.board
        self.budget_bytes = budget_bytes
        self._costs = costs
        is_dynamic = np.array([table.is_dynamic for table in gauge.arena.model.tables])
        self.is_dynamic: npt.NDArray[np.bool_] = is_dynamic
        # Bytes of memory that follow from one byte for rows, including this byte.
        self._factor = float((costs.all[is_dynamic] / costs.place[is_dynamic]).max(initial=1.0))
        # The same for the files of the arena, which do not contain the copies for checkpoints.
        in_files = costs.place + costs.index
        self._files_factor = float((in_files[is_dynamic] / costs.place[is_dynamic]).max(initial=1.0))
        self._refused: dict[int, int] = {}

    def turn(self, servers: Iterable[int], private_bytes: int, own: npt.NDArray[np.bool_] | None = None) -> HostFacts:
        """Measures the host and grants memory to `servers`, its PS. private_bytes: of all its processes. own: as in
        `MemoryGauge.read`."""
        # The order matters: `taken` is read before the used bytes are measured (`arena.memory_board`).
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
        """Sets another budget. A host whose rows lie on a disk keeps NO_LIMIT."""
        if self.budget_bytes != NO_LIMIT:
            self.budget_bytes = budget_bytes

    def take_back(self, servers: Iterable[int]) -> None:
        """Takes back the open grants of PS that have ended."""
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
        """The sample of this host for the tuner. Its used bytes have indexes at their largest size. share: share of new
        rows that this host gets. may_take: buckets can move to this host."""
        reading, is_dynamic = facts.reading, self.is_dynamic
        indexes = int((reading.live * self._costs.index).sum())
        used = reading.used_bytes - reading.index_bytes + indexes + facts.private_bytes + facts.copies_bytes
        places = float((reading.places * self._costs.all)[is_dynamic].sum())
        budget = min(self.budget_bytes, used + self.gauge.free_bytes)
        return HostMemorySample(facts.host, budget, used, places, share, may_take)
