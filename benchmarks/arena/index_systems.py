"""Three indexes from ids to rows: elastichost's index, torchrec's managed collision module, a Python dict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torchrec.modules.mc_modules import LFU_EvictionPolicy, MCHManagedCollisionModule
from torchrec.sparse.jagged_tensor import JaggedTensor

from elastichost.arena.arena import Arena
from elastichost.ps.rows.store import RowStore

__all__ = ["KINDS", "QUERIES", "ZIPF", "IndexSystem", "ManagedCollision", "cpu_ns", "index_systems", "queries_of"]

Int64 = npt.NDArray[np.int64]
Work = Callable[[Int64], object]

QUERIES = 200_000
ZIPF = 1.05
KINDS = ("uniform", "zipf")


@dataclass(frozen=True, slots=True)
class IndexSystem:
    """An index system: two functions that take ids int64 [n]."""

    insert: Work
    lookup: Work


class ManagedCollision:
    """torchrec's module with room for all keys; unknown ids get its last slot."""

    def __init__(self, keys: int) -> None:
        torch.set_num_threads(1)
        self._module = MCHManagedCollisionModule(
            zch_size=keys + 1,
            device=torch.device("cpu"),
            eviction_policy=LFU_EvictionPolicy(),
            eviction_interval=1,
            input_hash_size=2**62,
        ).train()

    @staticmethod
    def _features(keys: Int64) -> dict[str, JaggedTensor]:
        return {"f": JaggedTensor(values=torch.from_numpy(keys), lengths=torch.ones(len(keys), dtype=torch.int32))}

    def insert(self, keys: Int64) -> None:
        self._module.profile(self._features(keys))

    def lookup(self, keys: Int64) -> Int64:
        rows: Int64 = self._module.remap(self._features(keys))["f"].values().numpy()
        return rows


def index_systems(arena: Arena, store: RowStore, keys: int) -> dict[str, IndexSystem]:
    """The systems by name, with room for `keys` keys. The arena must be empty."""
    collision, dictionary = ManagedCollision(keys), dict[int, int]()
    out = np.empty(QUERIES, np.int64)

    def insert_dictionary(part: Int64) -> None:
        for key in part.tolist():
            dictionary.setdefault(key, len(dictionary))

    return {
        "elastichost": IndexSystem(
            lambda part: store.rows_for(0, part, True, 0), lambda query: arena.lookup(0, query, out)
        ),
        "torchrec_mch": IndexSystem(collision.insert, collision.lookup),
        "dict": IndexSystem(insert_dictionary, lambda query: [dictionary.get(key, -1) for key in query.tolist()]),
    }


def cpu_ns(work: Work, keys: Int64) -> float:
    """CPU time of this thread in ns for each key."""
    began = time.thread_time_ns()
    work(keys)
    return time.thread_time_ns() - began


def queries_of(keys: Int64, random: np.random.Generator) -> dict[str, Int64]:
    """Queries of each of KINDS, int64 [200,000]."""
    popularity = np.cumsum(np.arange(1, len(keys) + 1, dtype=np.float64) ** -ZIPF)
    drawn = np.searchsorted(popularity, random.random(QUERIES) * popularity[-1])
    return {"uniform": keys[random.integers(0, len(keys), QUERIES)], "zipf": keys[drawn]}
