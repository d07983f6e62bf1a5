"""Rows that nobody saw for long are dropped: when, by whom, and when the freed places may be used again.

A worker looks rows up some batches before it trains on them, so a dropped row's place stays unused until every
worker has committed more batches than it can have prefetched at the moment of dropping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.ps.rows.store import RowStore
from elastichost.ps.session import Session
from elastichost.specs import TableSpec
from elastichost.wire.crash import crash_point

__all__ = ["GRACE_BATCHES", "Applied", "EvictionRounds", "Evictor"]

# More than a worker can hold uncommitted: its prefetched batches, the one that waits for a place among them, the one in
# hand and the two whose commits are on their way.
GRACE_BATCHES = 8
ROUNDS_PER_AGE = 4  # a row is dropped at most 1/4 of its allowed age late
EVERY_S = 0.05
AGES_EVERY_S = 0.5

Applied = Mapping[int, tuple[int, int]]  # worker -> (incarnation, batches committed)


class EvictionRounds:
    """When: the state of one PS' rounds. `applied` is what each present worker has committed. Pure."""

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


class TrainingProgress(Protocol):
    """How far training is, as workers say in their requests."""

    @property
    def clock(self) -> int:
        """Samples trained, at least."""

    def committed_of(self, worker: int, incarnation: int) -> int:
        """Batches that this incarnation has committed, at least."""


class Evictor:
    """Drops rows as the rounds say. The dense vector of this host tells how far training is. Where there is none, what
    workers say in their requests does, and those of this host tell by `watermarks` which batch they are at."""

    def __init__(
        self,
        tables: Sequence[TableSpec],
        store: RowStore,
        dense: DenseStore,
        progress: TrainingProgress,
        session: Session,
        watermarks: Watermarks | None,
    ) -> None:
        self._tables = [table for table in tables if table.is_dynamic]
        self._rounds = EvictionRounds(self._tables)
        self._store, self._dense, self._progress, self._session = store, dense, progress, session
        self._watermarks = watermarks
        self._next_s = self._ages_at_s = 0.0

    def turn(self, owned: Iterable[tuple[int, int]], show_progress: Callable[[], object], now_s: float) -> None:
        """owned: (table, bucket) pairs. Call it often: the sooner a grace is known to be over, the fewer places lie
        idle. Does nothing until a moment has passed."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        if now_s >= self._ages_at_s:
            self._ages_at_s = now_s + AGES_EVERY_S
            for table in self._tables:
                self._rounds.set_age(table.index, self._store.evict_after(table.index))
        clock = self._dense.samples_applied() if self._watermarks is None else self._progress.clock
        applied = self._applied()
        if self._rounds.grace_is_over(applied):
            self._store.confirm_grace()
        for due in self._rounds.due(clock):
            evicted = 0
            for owned_table, bucket in sorted(owned):
                if owned_table == due:
                    evicted += self._store.evict(due, bucket, clock)
                    crash_point("ps.evict.midway")
                    show_progress()
            self._store.note_round(evicted)
        if self._store.needs_grace:
            self._rounds.begin_grace(applied)

    def _applied(self) -> Applied:
        members = self._session.members.items()
        if self._watermarks is None:
            return {
                worker: (incarnation, self._dense.applied(worker, incarnation).sequence)
                for worker, incarnation in members
            }
        # Who changes rows in place has committed all batches before the one it has begun.
        begun = self._watermarks.begun
        return {
            worker: (incarnation, max(self._progress.committed_of(worker, incarnation), begun(worker, incarnation) - 1))
            for worker, incarnation in members
        }
