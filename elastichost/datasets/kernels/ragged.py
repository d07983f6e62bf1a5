"""Kernels over ragged id columns: keys int64 [values], and offsets int64 [samples + 1] of each sample's keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import exactly_compiled

__all__ = ["drop_invalid", "take_ragged"]

Int64Array = npt.NDArray[np.int64]


@exactly_compiled
def drop_invalid(keys: Int64Array, offsets: Int64Array, valid: npt.NDArray[np.bool_]) -> tuple[Int64Array, Int64Array]:
    """The column without the values where `valid` [values] is False: keys [kept] and offsets [samples + 1]."""
    samples = offsets.shape[0] - 1
    new_keys = np.empty(keys.shape[0], dtype=np.int64)
    new_offsets = np.empty(samples + 1, dtype=np.int64)
    new_offsets[0] = 0
    kept = np.int64(0)
    for sample in range(samples):
        for at in range(offsets[sample], offsets[sample + 1]):
            # Every key is stored, and overwritten by the next if invalid: a branch on random nulls costs more.
            new_keys[kept] = keys[at]
            kept += np.int64(valid[at])
        new_offsets[sample + 1] = kept
    return new_keys[:kept].copy(), new_offsets


@exactly_compiled
def take_ragged(keys: Int64Array, offsets: Int64Array, order: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The column of the samples `order`, in this order: keys, and offsets [len(order) + 1]."""
    new_offsets = np.empty(order.shape[0] + 1, dtype=np.int64)
    new_offsets[0] = 0
    total = 0
    for position in range(order.shape[0]):
        sample = order[position]
        total += offsets[sample + 1] - offsets[sample]
        new_offsets[position + 1] = total
    new_keys = np.empty(total, dtype=np.int64)
    for position in range(order.shape[0]):
        source = offsets[order[position]]
        target = new_offsets[position]
        for step in range(new_offsets[position + 1] - target):
            new_keys[target + step] = keys[source + step]
    return new_keys, new_offsets
