"""Performs what `eviction` decides: evicts rows that were not seen for long, and frees their places for new rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from elastichost.arena.dense.store import DenseStore
from elastichost.arena.watermarks import Watermarks
from elastichost.ps.rows.eviction import Applied, EvictionRounds
from elastichost.ps.rows.store import RowStore
from elastichost.ps.session import Session
from elastichost.specs import TableSpec
from elastichost.wire.crash import crash_point

__all__ = ["Evictor"]

EVERY_S = 0.05
AGES_EVERY_S = 0.5


class TrainingProgress(Protocol):
    """How far training is, as workers report it in their requests."""

    @property
    def clock(self) -> int:
        """Samples trained so far, or fewer."""
        ...

    def committed_of(self, worker: int, incarnation: int) -> int:
        """Batches that this incarnation has committed, or fewer."""
        ...


class Evictor:
    """Evicts rows of the buckets of one PS.

    On host 0 the progress of training is read from the dense vector (watermarks None). On other hosts it is taken from
    the requests of workers, and from the watermarks: the batch that each worker of this host has begun. In sync mode
    (is_sync) no row is evicted, and workers read no index: what an index that has grown leaves behind is free at once.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        store: RowStore,
        dense: DenseStore,
        progress: TrainingProgress,
        session: Session,
        watermarks: Watermarks | None,
        *,
        is_sync: bool = False,
    ) -> None:
        self._tables = [table for table in tables if table.is_dynamic]
        self._rounds = EvictionRounds(self._tables)
        self._store, self._dense, self._progress, self._session = store, dense, progress, session
        self._watermarks, self._is_sync = watermarks, is_sync
        self._next_s = self._ages_at_s = 0.0

    def turn(self, owned: Iterable[tuple[int, int]], show_progress: Callable[[], object], now_s: float) -> None:
        """Performs what is due; does nothing within EVERY_S of the last turn. owned: (table, bucket) pairs.

        Call it often: the sooner the end of a grace period is found, the sooner places are used again.
        """
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
        if self._is_sync:
            return {}
        members = self._session.members.items()
        if self._watermarks is None:
            return {
                worker: (incarnation, self._dense.applied(worker, incarnation).sequence)
                for worker, incarnation in members
            }
        # A worker that changes rows in place has committed all batches before the one that it has begun.
        begun = self._watermarks.begun
        return {
            worker: (incarnation, max(self._progress.committed_of(worker, incarnation), begun(worker, incarnation) - 1))
            for worker, incarnation in members
        }
