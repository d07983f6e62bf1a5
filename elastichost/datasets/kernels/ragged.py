"""Kernels over ragged id columns: keys int64 [values], and offsets int64 [samples + 1] of each sample's keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import exactly_compiled, prefetch

__all__ = ["drop_invalid", "ragged_lengths", "take_ragged"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

AHEAD = 8  # samples prefetched in advance
KEYS_PER_LINE = 8  # int64 in a line of the caches
MOST_PREFETCHED = 3 * KEYS_PER_LINE  # keys of one sample


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
def ragged_lengths(offsets: Int64Array, samples: Int64Array, out: Int32Array) -> int:
    """Writes the number of keys of each of `samples` to `out` int32 [len(samples)]. Returns their sum."""
    total = 0
    for position in range(samples.shape[0]):
        length = offsets[samples[position] + 1] - offsets[samples[position]]
        out[position] = length
        total += length
    return total


@exactly_compiled
def take_ragged(keys: Int64Array, offsets: Int64Array, samples: Int64Array, out: Int64Array) -> None:
    """Writes the keys of `samples`, in this order, to `out` int64 [their number]."""
    last = samples.shape[0] - 1
    target = 0
    for position in range(last + 1):
        # The samples are scattered over a unit, which is larger than the caches.
        prefetch(offsets, samples[min(position + 2 * AHEAD, last)])
        later = offsets[samples[min(position + AHEAD, last)]]
        for step in range(0, MOST_PREFETCHED, KEYS_PER_LINE):
            prefetch(keys, later + step)
        source, stop = offsets[samples[position]], offsets[samples[position] + 1]
        for at in range(source, stop):
            out[target + at - source] = keys[at]
        target += stop - source
