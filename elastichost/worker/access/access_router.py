"""Access by place: which rows of a batch a worker uses in the mapped arena of its host, and which it has to pull.

Mapped are the rows of buckets that PS of its own host own, unless the shard map says that they are served to everybody:
those are about to go to another host, and their PS has to see every change of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.kernels import kernel_ready, split_by_place
from elastichost.specs import TableSpec
from elastichost.worker.channels.routing import Directory, key_divisors

__all__ = ["PlacedKeys", "Places", "SplitBatch"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PlacedKeys:
    """Some keys of a batch: keys int64 [m] in the order of the batch, those of feature f at bounds[f]:bounds[f + 1],
    and where each stands in it, at int64 [m]."""

    keys: Int64Array
    at: Int64Array
    bounds: Int64Array


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """values int64 [n]: mapped rows of fixed tables stand in it already. mapped: keys of dynamic tables that are to be
    looked up in the arena; elsewhere: all keys whose rows are to be pulled."""

    values: Int64Array
    mapped: PlacedKeys
    elsewhere: PlacedKeys


class Places:
    """tables: of the model; table_of: number of each feature's table; host: the worker's own. Belongs to one thread."""

    def __init__(self, tables: Sequence[TableSpec], table_of: Sequence[int], host: int) -> None:
        divisors = key_divisors(tables)
        self._divisors = np.array([divisors[table] for table in table_of], np.int64)
        self._table_of, self._host = list(table_of), host
        self._epoch = 0
        self._is_mapped: BoolArray = np.zeros(0, np.bool_)
        self._first_buckets: Int64Array = np.zeros(0, np.int64)

    def split(self, keys: Int64Array, bounds: Int64Array, directory: Directory) -> SplitBatch:
        """By this shard map. keys int64 [n], of which feature f has keys[bounds[f] : bounds[f + 1]]; a fixed table's
        key is its row."""
        if directory.epoch != self._epoch:
            self._learn(directory)
        count = len(keys)
        values, here_keys, here_at, there_keys, there_at = (np.empty(count, np.int64) for _ in range(5))
        here_bounds, there_bounds = np.empty_like(bounds), np.empty_like(bounds)
        split_by_place(
            kernel_ready(keys),
            bounds,
            self._divisors,
            self._first_buckets,
            self._is_mapped,
            values,
            here_keys,
            here_at,
            here_bounds,
            there_keys,
            there_at,
            there_bounds,
        )
        here, there = int(here_bounds[-1]), int(there_bounds[-1])
        return SplitBatch(
            values,
            PlacedKeys(here_keys[:here], here_at[:here], here_bounds),
            PlacedKeys(there_keys[:there], there_at[:there], there_bounds),
        )

    def _learn(self, directory: Directory) -> None:
        own = [server.index for server in directory.servers.values() if server.host == self._host]
        firsts = np.cumsum([0, *(len(of_table) for of_table in directory.owners)])
        self._is_mapped = np.isin(np.concatenate(directory.owners), own)
        for table, bucket in directory.served:
            self._is_mapped[firsts[table] + bucket] = False
        self._first_buckets = firsts[self._table_of]
        self._epoch = directory.epoch
