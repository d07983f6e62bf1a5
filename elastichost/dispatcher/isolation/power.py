"""Measures the memory bandwidth of the host, once, within milliseconds."""

from __future__ import annotations

import time

import numpy as np

from elastichost.dispatcher.core.demands import HostPower
from elastichost.resources import HostInventory

__all__ = ["power_of"]

COPIED_BYTES = 32 << 20  # so large that caches hold little of it
REPEATS = 4
SHARED = 0.6  # bandwidth that each further core adds, as a share of the first (assumed: cores share memory channels)


def power_of(inventory: HostInventory) -> HostPower:
    """Returns the cores of the host and their bandwidth in bytes/s. One core's copy is timed, where each byte counts
    twice (read and written); the bandwidth of all cores follows with SHARED."""
    source, target = np.ones(COPIED_BYTES, dtype=np.uint8), np.empty(COPIED_BYTES, dtype=np.uint8)
    np.copyto(target, source)  # allocates the pages of `target` before the timing
    fastest_s = min(_copy_s(target, source) for _ in range(REPEATS))
    one = 2 * COPIED_BYTES / max(fastest_s, 1e-6)
    return HostPower(len(inventory.cores), one * (1 + SHARED * (len(inventory.cores) - 1)))


def _copy_s(target: np.typing.NDArray[np.uint8], source: np.typing.NDArray[np.uint8]) -> float:
    began_s = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - began_s
