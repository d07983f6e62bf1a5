"""Decides when rows that were not seen for long are evicted, and when their places may be used again. Pure.

Rules
1. A round of a table is due when as many samples as the table's age were trained, then every quarter of the age.
2. The place of an evicted row is not used again before two grace periods are over (the first may have begun before the
   eviction). A worker looks rows up some batches before it trains on them, so it may still update the old place.
3. A grace period is over when every worker that was present at its beginning has committed at least GRACE_BATCHES more
   batches, has another incarnation, or is gone. That is more than it can have looked up at the beginning.

Inputs are the samples trained so far (`due`) and the committed batches of each worker (`begin_grace`, `grace_is_over`).
Nothing needs to be kept after a kill: the successor has the evicted rows in the arena and begins a new grace period.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastichost.specs import TableSpec

__all__ = ["GRACE_BATCHES", "Applied", "EvictionRounds"]

# More batches than a worker can have looked up and not committed: the prefetched ones, the one that waits for room
# among them, the one that is computed and the two whose commits are outstanding.
GRACE_BATCHES = 8
ROUNDS_PER_AGE = 4  # a row is evicted at most 1/4 of its allowed age late

Applied = Mapping[int, tuple[int, int]]  # worker -> (incarnation, batches committed)


class EvictionRounds:
    """The rounds and the grace period of one PS."""

    def __init__(self, tables: Sequence[TableSpec]) -> None:
        self._age: dict[int, int] = {}
        self._next: dict[int, int] = {}
        for table in tables:
            self.set_age(table.index, table.evict_after_samples)
        self._at_begin: dict[int, tuple[int, int]] | None = None

    def set_age(self, table: int, age: int) -> None:
        """Sets after how many samples without a sighting rows of the table are evicted; 0: never. After a change the
        next round is due as soon as `age` samples were trained."""
        if age == self._age.get(table, 0):
            return
        if age == 0:
            del self._age[table], self._next[table]
            return
        self._age[table] = self._next[table] = age

    def due(self, clock: int) -> tuple[int, ...]:
        """The tables whose round is due. clock: samples trained so far."""
        due = tuple(table for table, at in self._next.items() if clock >= at)
        for table in due:
            self._next[table] = clock + max(1, self._age[table] // ROUNDS_PER_AGE)
        return due

    def begin_grace(self, applied: Applied) -> None:
        """Starts a grace period, unless one is under way. applied: the committed batches of each present worker."""
        if self._at_begin is None:
            self._at_begin = dict(applied)

    def grace_is_over(self, applied: Applied) -> bool:
        """Whether the grace period is over; True once for each. Then no worker can still use a row that was evicted
        before the period began."""
        before = self._at_begin
        if before is None:
            return False
        for worker, (incarnation, sequence) in before.items():
            now = applied.get(worker)
            if now is not None and now[0] == incarnation and now[1] < sequence + GRACE_BATCHES:
                return False
        self._at_begin = None
        return True
