"""When rows that nobody saw for long are dropped, and when freed places may be used again. Pure.

A worker looks rows up some batches before it trains on them, so a dropped row's place stays unused until every
worker has committed more batches than it can have prefetched at the moment of dropping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastichost.specs import TableSpec

__all__ = ["GRACE_BATCHES", "Applied", "EvictionRounds"]

GRACE_BATCHES = 8  # more than a worker's prefetched batches, the one in hand and the two uncommitted ones
ROUNDS_PER_AGE = 4  # a row is dropped at most 1/4 of its allowed age late

Applied = Mapping[int, tuple[int, int]]  # worker -> (life, batches committed)


class EvictionRounds:
    """State of one PS' rounds. `applied` is what each present worker has committed."""

    def __init__(self, tables: Sequence[TableSpec]) -> None:
        self._next = {t.index: t.evict_after_samples for t in tables if t.is_dynamic and t.evict_after_samples}
        self._every = {index: max(1, age // ROUNDS_PER_AGE) for index, age in self._next.items()}
        self._at_begin: dict[int, tuple[int, int]] | None = None

    def due(self, clock: int) -> tuple[int, ...]:
        """Tables whose round it is, given the samples trained so far."""
        due = tuple(index for index, at in self._next.items() if clock >= at)
        for index in due:
            self._next[index] = clock + self._every[index]
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
        for worker, (life, sequence) in before.items():
            now = applied.get(worker)
            if now is not None and now[0] == life and now[1] < sequence + GRACE_BATCHES:
                return False
        self._at_begin = None
        return True
