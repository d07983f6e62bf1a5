"""Measures the memory bandwidth of the host, once, within tens of milliseconds. NVML tells that of links to GPUs."""

from __future__ import annotations

import statistics
import threading
import time

import numpy as np
import numpy.typing as npt

from elastichost.dispatcher.core.demands import LINK_BYTES_PER_S, HostPower
from elastichost.resources import HostInventory

__all__ = ["power_of"]

COPIED_BYTES = 32 << 20  # of one thread, so large that caches hold little of it
MOST_THREADS = 16  # that copy at once; a core can use more than a sixteenth of the bandwidth of its memory
REPEATS = 5

Bytes = npt.NDArray[np.uint8]


def power_of(inventory: HostInventory) -> HostPower:
    """Returns the cores of the host, their bandwidth in bytes/s, and that of the slowest link to a GPU.

    As many threads as cores, at most MOST_THREADS, copy at the same time, where each byte counts twice (read and
    written). The rates of all threads are added, each by its own CPU time: a wait for memory is part of it, and a wait
    for a core is not. If other processes use the cores, fewer threads copy at the same time, and the result is too
    high."""
    threads = max(1, min(len(inventory.cores), MOST_THREADS))
    pairs = [(np.zeros(COPIED_BYTES, np.uint8), np.ones(COPIED_BYTES, np.uint8)) for _ in range(threads)]
    for target, source in pairs:
        np.copyto(target, source)  # allocates the pages before the timing
    memory = statistics.median(_bytes_per_s(pairs) for _ in range(REPEATS))
    links = [gpu.link_bytes_per_s for gpu in inventory.gpus if gpu.link_bytes_per_s > 0]
    return HostPower(len(inventory.cores), memory, link_bytes_per_s=min(links, default=LINK_BYTES_PER_S))


def _bytes_per_s(pairs: list[tuple[Bytes, Bytes]]) -> float:
    """The bytes/s of all threads together, whose copies begin at the same time."""
    gate = threading.Barrier(len(pairs))
    rates: list[float] = []

    def copy(target: Bytes, source: Bytes) -> None:
        gate.wait()
        began_s = time.thread_time()
        np.copyto(target, source)
        rates.append(2 * target.nbytes / max(time.thread_time() - began_s, 1e-6))

    threads = [threading.Thread(target=copy, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)
