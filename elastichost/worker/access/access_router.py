"""Mixed access: decides which rows of a batch a worker uses in its host's mapped arena, and which it pulls.

A row is used in place when a PS on the worker's own host owns its bucket, unless the shard map lists the bucket under
`served`. Such a bucket is about to move to another host, so its PS must receive every update of it as a message.
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
    """Some of a batch's keys. keys int64 [m] in the batch's order; feature f has keys[bounds[f] : bounds[f + 1]];
    at int64 [m]: the position of each key in the batch."""

    keys: Int64Array
    at: Int64Array
    bounds: Int64Array


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """A batch's keys by place. values int64 [n]: already filled for mapped rows of fixed tables. mapped: keys of
    dynamic tables to look up in the arena; elsewhere: all keys whose rows are to be pulled."""

    values: Int64Array
    mapped: PlacedKeys
    elsewhere: PlacedKeys


class Places:
    """Splits batches by place. tables: the model's; table_of: the table index of each feature; host: the worker's own
    host. Belongs to one thread."""

    def __init__(self, tables: Sequence[TableSpec], table_of: Sequence[int], host: int) -> None:
        divisors = key_divisors(tables)
        self._divisors = np.array([divisors[table] for table in table_of], np.int64)
        self._table_of, self._host = list(table_of), host
        self._epoch = 0
        self._is_mapped: BoolArray = np.zeros(0, np.bool_)
        self._first_buckets: Int64Array = np.zeros(0, np.int64)

    def split(self, keys: Int64Array, bounds: Int64Array, directory: Directory) -> SplitBatch:
        """Splits keys int64 [n] by this shard map. Feature f has keys[bounds[f] : bounds[f + 1]]; the key of a fixed
        table is its row number."""
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
