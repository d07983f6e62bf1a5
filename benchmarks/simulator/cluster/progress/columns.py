"""One row for each job that has not ended: its progress, and what its speed follows from.

Most events of a large cluster only change the rates of jobs beside the one that came or ended. So everything that such
an event needs is a number in an array, and no object is touched for it.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Column", "Floats", "Integers", "JobColumns", "new_row"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
ROWS = 64  # at first; doubled when they are used up

# the places of a row. Progress; it is exact at SETTLED_S, and the rate was constant since then
(
    SETTLED_S,
    RATE,  # samples/s
    USED_CORES,
    TRAINED,  # samples without those that were trained again
    WORK,  # samples with them
    WAITED_S,
    CORE_S,
    USED_CORE_S,
    MEMORY_BYTE_S,
    USED_BYTE_S,
    HOT_S,
    STRAGGLE_S,
    BLOCK_BEGAN_S,
    BLOCK_WORK,  # work until the present block began
    BLOCK_ENDS_S,  # inf: no block is being measured
    # shares of the cores of its hosts that other jobs use
    CROWDING,
    # the memory curve, of the job
    SAMPLES,
    GROWTH_BYTES,
    BETA,
    CURVE_SAMPLES,
    DROPS_ROWS,  # 1: its memory suffices
    # what the speed and the end follow from; written whenever it changes
    CORES,  # 0: the job waits
    GRANTED_BYTES,
    CONSTANT_BYTES,  # memory without dynamic rows
    FULL_SAMPLES,  # after which the granted memory is used up; inf: never
    NEXT_SAMPLES,  # after which an increase of memory turns out to have been needed
    IS_HOT,
    HAS_STRAGGLERS,
    SPEED,  # samples/s without interference, noise and changes; 0: none
    VARIES_BY,
    CHANGING_UNTIL_S,
    CHANGE_SHARE,
    PAUSED_UNTIL_S,
    PAUSE_SHARE,
    BATCH_SIZE,
    COUNTED_WORKERS,  # whose CPU time one iteration needs: all of them in sync mode, else one
    WORKER_CPU_S,
    SERVER_CPU_S,
    WORKER_CORES,  # of all workers together
    SERVER_CORES,
    FIELDS,
) = range(41)
FIRST_PARAMETER = CORES


def new_row(arrived_s: float) -> Floats:
    """The row of a job that waits since arrived_s, float64 [FIELDS]."""
    row = np.zeros(FIELDS)
    row[SETTLED_S], row[BLOCK_ENDS_S] = arrived_s, math.inf
    row[FULL_SAMPLES] = row[NEXT_SAMPLES] = math.inf
    row[CHANGING_UNTIL_S] = row[PAUSED_UNTIL_S] = -math.inf
    return row


class _HasRow(Protocol):
    row: Floats


class Column:
    """An attribute of an object that is a number of its `row`."""

    __slots__ = ("_place",)

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, owner: _HasRow, _: type | None = None) -> float:
        return float(owner.row.item(self._place))

    def __set__(self, owner: _HasRow, value: float) -> None:
        owner.row[self._place] = value


class JobColumns:
    """The rows of all jobs. rows: float64 [n, FIELDS]. jobs: int64 [n]. ends_s: time at which the job has trained all
    samples or used up its memory, float64 [n]; inf: not at the present rate. orders: of these events among events of
    the same time, int64 [n]. counts: number of hosts of a job, int64 [n]; hosts, cores: these hosts and the job's cores
    on each, int64 [n, width]."""

    def __init__(self, width: int) -> None:
        """width: largest number of hosts of one job."""
        self.rows = np.zeros((ROWS, FIELDS))
        self.jobs = np.zeros(ROWS, dtype=np.int64)
        self.ends_s = np.full(ROWS, math.inf)
        self.orders = np.zeros(ROWS, dtype=np.int64)
        self.counts = np.zeros(ROWS, dtype=np.int64)
        self.hosts, self.cores = (np.zeros((ROWS, width), dtype=np.int64) for _ in range(2))
        self._free = list(range(ROWS - 1, -1, -1))

    @property
    def has_room(self) -> bool:
        return bool(self._free)

    def grow(self) -> None:
        """Doubles the rows; views of single rows become stale."""
        size = len(self.rows)
        self._free = list(range(2 * size - 1, size - 1, -1))
        self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
        self.jobs, self.orders, self.counts, self.hosts, self.cores = (
            np.concatenate([one, np.zeros_like(one)])
            for one in (self.jobs, self.orders, self.counts, self.hosts, self.cores)
        )
        self.ends_s = np.concatenate([self.ends_s, np.full(size, math.inf)])

    def take(self, job: int, row: Floats) -> int:
        """Returns the index of a free row, which becomes a copy of this one."""
        index = self._free.pop()
        self.jobs[index], self.rows[index] = job, row
        self.ends_s[index], self.counts[index] = math.inf, 0
        return index

    def free(self, index: int) -> None:
        self.ends_s[index], self.counts[index] = math.inf, 0
        self._free.append(index)
