"""Finds the distinct keys of a batch, table after table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.kernels import kernel_ready, leave_missing_out, unique_by_table

__all__ = ["UniqueKeys", "UniqueKeysFinder"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class UniqueKeys:
    """The distinct keys of a batch. keys int64 [u]: table t has keys[bounds[t] : bounds[t + 1]], in order of first
    appearance; positions int64 [n]: the position of each key of the batch among the distinct keys of its table."""

    keys: Int64Array
    bounds: Int64Array
    positions: Int64Array


class UniqueKeysFinder:
    """Finds distinct keys with a hash table that it reuses. features_of[t]: the numbers of the features of table t.
    Belongs to one thread."""

    def __init__(self, features_of: Sequence[Sequence[int]]) -> None:
        self._features = np.array([number for numbers in features_of for number in numbers], np.int64)
        self._first_features = np.cumsum([0, *(len(numbers) for numbers in features_of)])
        self._slots = np.zeros(0, np.int32)

    def find(self, keys: Int64Array, feature_bounds: Int64Array) -> UniqueKeys:
        """The distinct keys of keys int64 [n]; feature f has keys[feature_bounds[f] : feature_bounds[f + 1]]."""
        slots = 1 << (2 * max(1, len(keys))).bit_length()
        if len(self._slots) < slots:
            self._slots = np.zeros(slots, np.int32)
        unique, positions = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
        bounds = np.empty(len(self._first_features), np.int64)
        where = (feature_bounds, self._features, self._first_features)
        unique_by_table(kernel_ready(keys), *where, self._slots, unique, bounds, positions)
        return UniqueKeys(unique[: bounds[-1]], bounds, positions)

    def occurrences(self, unique: UniqueKeys, chosen: npt.NDArray[np.bool_], feature_bounds: Int64Array) -> int:
        """The number of the batch's keys whose distinct key is chosen (bool [u])."""
        found = 0
        for table, (first, stop) in enumerate(itertools.pairwise(self._first_features.tolist())):
            of_table = chosen[unique.bounds[table] : unique.bounds[table + 1]]
            for feature in self._features[first:stop].tolist():
                positions = unique.positions[feature_bounds[feature] : feature_bounds[feature + 1]]
                found += int(np.count_nonzero(of_table[positions]))
        return found

    def leave_out(self, unique: UniqueKeys, rows: Int64Array, feature_bounds: Int64Array) -> None:
        """Sets `unique.positions` of keys without a row to -1. rows int64 [u]: below 0 where a key has no row."""
        where = (feature_bounds, self._features, self._first_features)
        leave_missing_out(kernel_ready(rows), unique.bounds, *where, unique.positions)
