"""Integrates the progress of jobs, and computes their rates: compiled, on the rows of `columns`.

The equations and the order of their terms are those of one job; a row gives the same bits whether it is advanced alone
or with others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.progress.columns import (
    BATCH_SIZE,
    BETA,
    BLOCK_BEGAN_S,
    BLOCK_ENDS_S,
    BLOCK_WORK,
    CHANGE_SHARE,
    CHANGING_UNTIL_S,
    CONSTANT_BYTES,
    CORE_S,
    CORES,
    COUNTED_WORKERS,
    CROWDING,
    CURVE_SAMPLES,
    DROPS_ROWS,
    FULL_SAMPLES,
    GRANTED_BYTES,
    GROWTH_BYTES,
    HAS_STRAGGLERS,
    HOT_S,
    IS_HOT,
    MEMORY_BYTE_S,
    NEXT_SAMPLES,
    PAUSE_SHARE,
    PAUSED_UNTIL_S,
    RATE,
    SAMPLES,
    SERVER_CORES,
    SERVER_CPU_S,
    SETTLED_S,
    SPEED,
    STRAGGLE_S,
    TRAINED,
    USED_BYTE_S,
    USED_CORE_S,
    USED_CORES,
    VARIES_BY,
    WAITED_S,
    WORK,
    WORKER_CORES,
    WORKER_CPU_S,
)
from elastichost.host.kernel_cache import use_kernel_cache

__all__ = ["FOUND", "SAVED", "SAVED_SETTLED_S", "crowd", "ends_after", "first_end", "refresh", "renew", "settle"]

P = ParamSpec("P")
R = TypeVar("R")
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
_KEPT = use_kernel_cache()
# the state from which blocks and records follow, before a row was advanced: began_s and end of the first block, work
# until it began; settled_s, work, trained, rate
SAVED, SAVED_SETTLED_S = 7, 3
FOUND = 4  # see `crowd`


def _inlined(function: Callable[P, R]) -> Callable[P, R]:
    return cast(Callable[P, R], numba.njit(error_model="numpy", forceinline=True, _nrt=False)(function))


def _compiled(function: Callable[P, R]) -> Callable[P, R]:
    return cast(Callable[P, R], numba.njit(cache=_KEPT, nogil=True, error_model="numpy", _nrt=False)(function))


@_inlined
def _byte_seconds(row: Floats, before: float, trained: float, seconds: float) -> float:
    """As `memory_curve.MemoryCurve.byte_seconds`."""
    constant, growth, beta, samples = row[CONSTANT_BYTES] * seconds, row[GROWTH_BYTES], row[BETA], row[CURVE_SAMPLES]
    if trained <= before:
        return float(constant + growth * math.pow(before / samples, beta) * seconds)
    power = beta + 1.0
    high, low = math.pow(trained / samples, power), math.pow(before / samples, power)
    return float(constant + growth * seconds * (high - low) * samples / (power * (trained - before)))


@_inlined
def _end_blocks(row: Floats, now_s: float, block_s: float) -> int:
    """Ends the blocks until now_s. Returns their number."""
    count, end_s = 0, row[BLOCK_ENDS_S]
    if end_s > now_s:
        return 0
    while end_s <= now_s:
        row[BLOCK_BEGAN_S] = end_s
        end_s += block_s
        count += 1
    row[BLOCK_WORK] = row[WORK] + row[RATE] * (row[BLOCK_BEGAN_S] - row[SETTLED_S])
    row[BLOCK_ENDS_S] = end_s
    return count


@_inlined
def _settle(row: Floats, now_s: float, block_s: float, saved: Floats) -> int:
    seconds = now_s - row[SETTLED_S]
    if seconds <= 0.0:
        return 0
    rate, before = row[RATE], row[TRAINED]
    saved[0], saved[1], saved[2] = row[BLOCK_BEGAN_S], row[BLOCK_ENDS_S], row[BLOCK_WORK]
    saved[3], saved[4], saved[5], saved[6] = row[SETTLED_S], row[WORK], before, rate
    blocks = _end_blocks(row, now_s, block_s)
    row[SETTLED_S] = now_s
    if row[CORES] == 0.0:
        row[WAITED_S] += seconds
        return blocks
    done = rate * seconds
    row[TRAINED] = before + done
    row[WORK] += done
    row[CORE_S] += row[CORES] * seconds
    row[USED_CORE_S] += row[USED_CORES] * seconds
    row[MEMORY_BYTE_S] += row[GRANTED_BYTES] * seconds
    used = _byte_seconds(row, before, row[TRAINED], seconds)
    row[USED_BYTE_S] += min(used, row[GRANTED_BYTES] * seconds) if row[DROPS_ROWS] != 0.0 else used
    if row[IS_HOT] != 0.0:
        row[HOT_S] += seconds
    if row[HAS_STRAGGLERS] != 0.0:
        row[STRAGGLE_S] += seconds
    return blocks


@_inlined
def _refresh(row: Floats, now_s: float, interference: float) -> None:
    row[RATE] = 0.0
    row[USED_CORES] = 0.0
    if row[CORES] == 0.0 or row[SPEED] == 0.0:
        return
    rate = row[SPEED] * (row[VARIES_BY] / (1.0 + interference * row[CROWDING]))
    if now_s < row[CHANGING_UNTIL_S]:
        rate *= row[CHANGE_SHARE]
    if now_s < row[PAUSED_UNTIL_S]:
        rate *= row[PAUSE_SHARE]
    row[RATE] = rate
    iterations = rate / row[BATCH_SIZE]
    used = min(row[WORKER_CORES], iterations * row[COUNTED_WORKERS] * row[WORKER_CPU_S])
    row[USED_CORES] = used + min(row[SERVER_CORES], iterations * row[SERVER_CPU_S])


@_inlined
def _ends_after(row: Floats) -> float:
    if row[RATE] <= 0.0 or row[CORES] == 0.0:
        return math.inf
    last = row[SAMPLES]
    if row[FULL_SAMPLES] < last and row[DROPS_ROWS] == 0.0:
        last = row[FULL_SAMPLES]
    return float(max(0.0, last - row[TRAINED]) / row[RATE])


@_compiled
def settle(row: Floats, now_s: float, block_s: float, saved: Floats) -> int:
    """Integrates the progress of one row, float64 [FIELDS], up to now_s. Returns the number of blocks that ended.
    saved: float64 [SAVED], gets the state before it, if time has passed."""
    return _settle(row, now_s, block_s, saved)


@_compiled
def refresh(row: Floats, now_s: float, interference: float) -> None:
    """Computes the rate and the used cores of one row. interference: relative loss of speed on full hosts."""
    _refresh(row, now_s, interference)


@_compiled
def ends_after(row: Floats) -> float:
    """Seconds until all samples are trained or the memory is used up; inf: neither at the present rate."""
    return _ends_after(row)


@_compiled
def first_end(ends_s: Floats, orders: Integers) -> int:
    """The index of the first event: the least time, and the least order of those with this time. ends_s: float64 [n], n
    at least 1."""
    first = 0
    for index in range(1, len(ends_s)):
        if ends_s[index] < ends_s[first] or (ends_s[index] == ends_s[first] and orders[index] < orders[first]):
            first = index
    return first


@_compiled
def renew(
    now_s: float,
    block_s: float,
    block_ends_s: Floats,
    blocks: Integers,
    seen_s: Floats,
    left: Floats,
    rows: Floats,
) -> None:
    """Counts the blocks that have ended, and notes the samples that are left, of each job with such a block. [n] each:
    block_ends_s float64, end of the present block; blocks int64, number of ended ones; seen_s, left: float64. rows: as
    in `columns.JobColumns`."""
    for index in range(len(block_ends_s)):
        end_s = block_ends_s[index]
        if end_s > now_s:
            continue
        while end_s <= now_s:
            end_s += block_s
            blocks[index] += 1
        block_ends_s[index] = end_s
        row = rows[index]
        trained = row[TRAINED] + row[RATE] * (now_s - row[SETTLED_S])
        left[index] = max(0.0, row[SAMPLES] - trained)
        seen_s[index] = now_s


@_inlined
def _crowding(hosts: Integers, cores: Integers, count: int, host_cores: Integers, free_cores: Integers) -> float:
    own, others = 0.0, 0.0
    for place in range(count):
        host, here = hosts[place], cores[place]
        taken = host_cores[host] - free_cores[host] - here
        own += here
        others += here * taken / host_cores[host]
    return others / own if own > 0.0 else 0.0


@_compiled
def crowd(
    now_s: float,
    block_s: float,
    interference: float,
    order: int,
    indices: Integers,
    rows: Floats,
    ends_s: Floats,
    orders: Integers,
    counts: Integers,
    hosts: Integers,
    cores: Integers,
    host_cores: Integers,
    free_cores: Integers,
    saved: Floats,
    found: Integers,
) -> tuple[int, int]:
    """Settles the rows whose crowding has changed, and computes their rates and ends. Returns the number of these rows,
    and the order of the last event.

    indices: int64 [n], rows in the order of their jobs. order: of the last event before. host_cores, free_cores: int64
    [hosts]. saved: float64 [n, SAVED], the states of the changed rows before; SAVED_SETTLED_S is inf if no time has
    passed. found: int64 [n, FOUND], of each changed row: place in indices; ended blocks; 1 if an increase of memory
    must be judged; order of the event that the end of a change or a pause needs, 0: none. Other arrays as in
    `columns.JobColumns`."""
    changed = 0
    for place in range(len(indices)):
        index = indices[place]
        row = rows[index]
        crowding = _crowding(hosts[index], cores[index], counts[index], host_cores, free_cores)
        if crowding == row[CROWDING]:
            continue
        saved[changed, SAVED_SETTLED_S] = math.inf
        found[changed, 0] = place
        found[changed, 1] = _settle(row, now_s, block_s, saved[changed])
        found[changed, 2] = 1 if row[TRAINED] >= row[NEXT_SAMPLES] else 0
        row[CROWDING] = crowding
        _refresh(row, now_s, interference)
        seconds = _ends_after(row)
        ends_s[index] = now_s + seconds
        if seconds < math.inf:
            order += 1
            orders[index] = order
        found[changed, 3] = 0
        if row[CHANGING_UNTIL_S] > now_s or row[PAUSED_UNTIL_S] > now_s:
            order += 1
            found[changed, 3] = order
        changed += 1
    return changed, order
