"""How much memory bandwidth a host has: measured once, in some milliseconds."""

from __future__ import annotations

import time

import numpy as np

from elastichost.dispatcher.core.demands import HostPower
from elastichost.resources import HostInventory

__all__ = ["power_of"]

COPIED_BYTES = 32 << 20  # beyond any cache
REPEATS = 4
SHARED = 0.6  # of one core's bandwidth, which each further core adds (assumed: channels are shared)


def power_of(inventory: HostInventory) -> HostPower:
    """Bytes a second that one core copies (each read and written), and with it what all of them can."""
    source, target = np.ones(COPIED_BYTES, dtype=np.uint8), np.empty(COPIED_BYTES, dtype=np.uint8)
    np.copyto(target, source)  # its pages are there from now on
    fastest_s = min(_copy_s(target, source) for _ in range(REPEATS))
    one = 2 * COPIED_BYTES / max(fastest_s, 1e-6)
    return HostPower(len(inventory.cores), one * (1 + SHARED * (len(inventory.cores) - 1)))


def _copy_s(target: np.typing.NDArray[np.uint8], source: np.typing.NDArray[np.uint8]) -> float:
    began_s = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - began_s
