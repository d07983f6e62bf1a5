"""When rows that nobody saw for long are dropped, and when freed places may be used again. Pure.

A worker looks rows up some batches before it trains on them, so a dropped row's place stays unused until every
worker has committed more batches than it can have prefetched at the moment of dropping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastichost.specs import TableSpec

__all__ = ["GRACE_BATCHES", "Applied", "EvictionRounds"]

# More than a worker can hold uncommitted: its prefetched batches, the one that waits for a place among them, the one in
# hand and the two whose commits are on their way.
GRACE_BATCHES = 8
ROUNDS_PER_AGE = 4  # a row is dropped at most 1/4 of its allowed age late

Applied = Mapping[int, tuple[int, int]]  # worker -> (incarnation, batches committed)


class EvictionRounds:
    """State of one PS' rounds. `applied` is what each present worker has committed."""

    def __init__(self, tables: Sequence[TableSpec]) -> None:
        self._age: dict[int, int] = {}
        self._next: dict[int, int] = {}
        for table in tables:
            self.set_age(table.index, table.evict_after_samples)
        self._at_begin: dict[int, tuple[int, int]] | None = None

    def set_age(self, table: int, age: int) -> None:
        """Rows of the table unseen for so many samples are dropped; 0: none is. With another age than before the next
        round comes as soon as there can be rows of that age."""
        if age == self._age.get(table, 0):
            return
        if age == 0:
            del self._age[table], self._next[table]
            return
        self._age[table] = self._next[table] = age

    def due(self, clock: int) -> tuple[int, ...]:
        """Tables whose round it is, given the samples trained so far."""
        due = tuple(table for table, at in self._next.items() if clock >= at)
        for table in due:
            self._next[table] = clock + max(1, self._age[table] // ROUNDS_PER_AGE)
        return due

    def begin_grace(self, applied: Applied) -> None:
        """Something was dropped: a grace period begins, unless one is under way."""
        if self._at_begin is None:
            self._at_begin = dict(applied)

    def grace_is_over(self, applied: Applied) -> bool:
        """True once after each grace period: nobody can still hold a row dropped before it began."""
        before = self._at_begin
        if before is None:
            return False
        for worker, (incarnation, sequence) in before.items():
            now = applied.get(worker)
            if now is not None and now[0] == incarnation and now[1] < sequence + GRACE_BATCHES:
                return False
        self._at_begin = None
        return True
