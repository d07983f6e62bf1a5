"""Performs what `eviction` decides: drops rows that nobody saw for long, and lets their places be used again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from elastichost.arena.dense import DenseStore
from elastichost.ps.eviction import Applied, EvictionRounds
from elastichost.ps.service import DataService
from elastichost.ps.session import Session
from elastichost.ps.store import RowStore
from elastichost.specs import TableSpec

__all__ = ["Evictor"]


class Evictor:
    """The dense vector of this host tells how far training is; with `has_dense` False there is none, and what workers
    say in their requests does."""

    def __init__(
        self,
        tables: Sequence[TableSpec],
        store: RowStore,
        dense: DenseStore,
        service: DataService,
        session: Session,
        *,
        has_dense: bool,
    ) -> None:
        self._rounds = EvictionRounds(tables)
        self._store, self._dense, self._service, self._session = store, dense, service, session
        self._has_dense = has_dense

    def turn(self, owned: Iterable[tuple[int, int]], show_progress: Callable[[], object]) -> None:
        """owned: (table, bucket) pairs. Call it now and then."""
        clock = self._dense.samples_applied() if self._has_dense else self._service.clock
        applied = self._applied()
        if self._rounds.grace_is_over(applied):
            self._store.confirm_grace()
        for table in self._rounds.due(clock):
            for owned_table, bucket in sorted(owned):
                if owned_table == table:
                    self._store.evict(table, bucket, clock)
                    show_progress()
        if self._store.needs_grace:
            self._rounds.begin_grace(applied)

    def _applied(self) -> Applied:
        members = self._session.members.items()
        if self._has_dense:
            return {worker: (life, self._dense.applied(worker, life).sequence) for worker, life in members}
        return {worker: (life, self._service.committed_of(worker, life)) for worker, life in members}
