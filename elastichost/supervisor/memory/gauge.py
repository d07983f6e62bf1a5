"""Measures the arena of one host, from the sizes of its files and the headers of its buckets.

With `resources.hosts` the arenas of other hosts are directories of this machine, and are measured in the same way. Of
an arena on another machine, this machine has a replica with its headers; the agent reports the sizes of its files
(`supervisor.elastic_hosts.arena_replica`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elastichost.arena.arena import Arena
from elastichost.arena.host import free_bytes, is_in_memory, used_bytes
from elastichost.arena.index import table as index
from elastichost.arena.kernels import SAMPLES_PER_STAMP
from elastichost.arena.layout import HEADER_WORDS, SLOT_BYTES
from elastichost.specs import ModelSpec
from elastichost.tuner.memory.facts import AGE_EDGES

__all__ = ["INDEX_PEAK", "ArenaUse", "MemoryGauge", "OwnArena", "Reading", "RowCosts", "ages_of", "row_costs"]

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

INDEX_GROWTH = 1.4  # slots of a generation of an index / slots of the generation before it
INDEX_PEAK = 1 + INDEX_GROWTH  # slots while an index grows / published slots: both generations exist then
SLOTS_PER_ROW = 2.25  # when the indexes of the buckets have just grown
SAMPLED_ROWS = 200_000  # the number of rows of a table whose ages are read


@dataclass(frozen=True, slots=True)
class RowCosts:
    """Bytes of one row of each table, float64 [tables]. place: weights, optimizer state, id and stamp. copy: the copy
    of the place for a checkpoint. index: slots while the index grows. Rows of fixed tables have no id, stamp or slots.
    """

    place: Float64
    copy: Float64
    index: Float64

    @property
    def all(self) -> Float64:
        return self.place + self.copy + self.index


def row_costs(model: ModelSpec) -> RowCosts:
    """The costs of the rows of a model's tables."""

    def place(table: int) -> int:
        return sum(e.bytes_per_element * e.padded_dim + 4 * e.state_floats_per_row for e in model.embeddings_of(table))

    is_dynamic = np.array([table.is_dynamic for table in model.tables], np.float64)
    places = np.array([place(table.index) for table in model.tables], np.float64) + 12 * is_dynamic
    return RowCosts(places, places, is_dynamic * (SLOTS_PER_ROW * INDEX_PEAK * SLOT_BYTES))


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement of an arena.

    used_bytes: of the whole arena. index_bytes: of its index file. index_peak_bytes: of the indexes of dynamic tables
    if they all grow at once. Numbers of rows by table, int64 [tables]: allocated; places: handed out, in use or free;
    live: in use; evicted: evicted so far.
    """

    used_bytes: int
    index_bytes: int
    index_peak_bytes: int
    allocated: Int64
    places: Int64
    live: Int64
    evicted: Int64


class ArenaUse(Protocol):
    """The bytes that the files of an arena take, and the free bytes of their file system. has_rows: the rows can be
    read on this machine."""

    @property
    def used_bytes(self) -> int: ...

    @property
    def index_bytes(self) -> int: ...

    @property
    def free_bytes(self) -> int: ...

    @property
    def has_rows(self) -> bool: ...

    @property
    def is_in_memory(self) -> bool:
        """Whether the files take memory. Files on a disk do not: the page cache uses only memory that is free."""
        ...

    def tell(self) -> None:
        """Makes sure that the PS of the arena get what the supervisor has written to the memory board."""
        ...


class OwnArena:
    """`ArenaUse` of an arena of this machine."""

    has_rows = True

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    @property
    def used_bytes(self) -> int:
        try:
            return used_bytes(self._arena.directory)
        except FileNotFoundError:  # the files were removed; mapped pages still take memory
            return self._arena.touched_bytes()

    @property
    def index_bytes(self) -> int:
        return self._arena.files.index.touched_bytes()

    @property
    def free_bytes(self) -> int:
        return free_bytes(self._arena.directory)

    @property
    def is_in_memory(self) -> bool:
        return is_in_memory(self._arena.directory)

    def tell(self) -> None:
        """Does nothing, because the PS read the same words."""


class MemoryGauge:
    """Measures the arena of one host. arena: the mapped arena, or its replica. use: None if it is on this machine."""

    def __init__(self, host: int, arena: Arena, use: ArenaUse | None = None) -> None:
        self.host, self.arena = host, arena
        self.use = use or OwnArena(arena)
        layout = arena.layout
        counts = [layout.bucket_count(table.index) for table in layout.model.tables]
        self._table_of = np.repeat(np.arange(len(counts)), counts)
        self._is_dynamic = np.repeat([table.is_dynamic for table in layout.model.tables], counts)
        self._dynamic = [table.index for table in layout.model.tables if table.is_dynamic]

    @property
    def _headers(self) -> Int64:
        count = len(self._table_of)
        return self.arena.control[: count * HEADER_WORDS].reshape(count, HEADER_WORDS)

    def read(self, own: npt.NDArray[np.bool_] | None = None) -> Reading:
        """Measures the arena. own: bool [buckets of all tables], the buckets whose rows count; None: all. Rows of other
        buckets are copies for a move between hosts."""
        headers = self._headers
        slots = headers[:, index.GENERATION] & ((1 << index.CAPACITY_BITS) - 1)

        def by_table(word: int) -> Int64:
            column = headers[:, word] if own is None else headers[:, word] * own
            return np.bincount(self._table_of, column, len(self.arena.model.tables)).astype(np.int64)

        return Reading(
            used_bytes=self.use.used_bytes,
            index_bytes=self.use.index_bytes,
            index_peak_bytes=int(INDEX_PEAK * SLOT_BYTES * int(slots[self._is_dynamic].sum())),
            allocated=by_table(index.ALLOCATED_ROWS),
            places=by_table(index.NEXT_ROW),
            live=by_table(index.LIVE_ROWS),
            evicted=by_table(index.EVICTED),
        )

    def own_buckets(self, owners: Mapping[tuple[int, int], int], hosts: Mapping[int, int]) -> npt.NDArray[np.bool_]:
        """The buckets that PS of this host own, bool [buckets of all tables]. owners: (table, bucket) -> PS. hosts: PS
        -> host."""
        return np.array([hosts.get(owners[key]) == self.host for key in sorted(owners)], np.bool_)

    @property
    def free_bytes(self) -> int:
        """Free bytes of the file system of the arena."""
        return self.use.free_bytes

    def ages(self, tables: set[int], samples: int) -> Float64:
        """Number of rows that were unseen for at most AGE_EDGES samples, float64 [tables, edges]; zeros for tables that
        are not in `tables`. samples: trained so far. It is estimated from some buckets: ids are assigned to buckets by
        their hashes, so the buckets of a table are alike."""
        found = np.zeros((len(self.arena.model.tables), len(AGE_EDGES)))
        now = samples // SAMPLES_PER_STAMP + 1
        for table in self._dynamic:
            if table in tables:
                found[table] = self._ages_of(table, now)
        return found

    def _ages_of(self, table: int, now: int) -> Float64:
        counts, sampled, total = np.zeros(len(AGE_EDGES)), 0, 0
        seen = self.arena.seen_view(table)
        for bucket in range(self.arena.layout.bucket_count(table)):
            header = self.arena.header(table, bucket)
            live = int(header[index.LIVE_ROWS])
            total += live
            if sampled >= SAMPLED_ROWS or live == 0:
                continue
            first = self.arena.layout.bucket_first_row(table, bucket)
            stride = max(1, live // SAMPLED_ROWS)
            stamps = seen[first : first + int(header[index.NEXT_ROW]) : stride]
            stamps = stamps[stamps > 0].astype(np.int64)
            ages = np.sort(np.maximum(0, now - stamps) * SAMPLES_PER_STAMP)
            counts += np.searchsorted(ages, AGE_EDGES, side="right")
            sampled += len(ages)
        return counts * (total / sampled) if sampled else counts


def ages_of(gauges: Sequence[MemoryGauge], tables: set[int], samples: int) -> Float64:
    """`MemoryGauge.ages` of all hosts together. Rows on other machines cannot be read; they are assumed to have the
    ages of the others, because ids are assigned to buckets by their hashes."""
    near = [gauge for gauge in gauges if gauge.use.has_rows]
    found: Float64 = np.sum([gauge.ages(tables, samples) for gauge in near], axis=0)
    if len(near) == len(gauges):
        return found
    live = {gauge.host: gauge.read().live for gauge in gauges}
    reached = np.sum([live[gauge.host] for gauge in near], axis=0)
    scale: Float64 = np.sum(list(live.values()), axis=0) / np.maximum(1, reached)
    return found * scale[:, None]
