"""The views of all jobs that have not ended, and in columns what changes with each of their blocks.

A view of every job is made after each of its blocks: millions of them in a simulation of thousands of jobs. So the
times, the numbers of blocks and the samples that are left are columns, and events of blocks are not needed.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.blocks.block_log import BlockHistory, BlockLog
from benchmarks.simulator.cluster.views import JobView

__all__ = ["JobTable"]

Floats = npt.NDArray[np.float64]
ROWS = 64  # at first; doubled when they are used up


class JobTable:
    """One row for each job that has not ended."""

    def __init__(self, block_s: float) -> None:
        """block_s: length of a block in seconds."""
        self._block_s = block_s
        self._rows: dict[int, int] = {}  # job -> its row
        self._views: dict[int, JobView] = {}  # in order of arrival
        self._logs: dict[int, BlockLog] = {}
        self._free = list(range(ROWS - 1, -1, -1))
        self._jobs = np.zeros(ROWS, dtype=np.int64)
        self._ends_s = np.full(ROWS, math.inf)  # end of the present block; inf: none is being measured
        self._counts = np.zeros(ROWS, dtype=np.int64)  # blocks that have ended
        # samples/s since settled_s, samples trained until then, samples of the job
        self._rates, self._settled_s, self._trained, self._samples = (np.zeros(ROWS) for _ in range(4))

    def add(self, job: int, samples: float, view: JobView, log: BlockLog) -> None:
        """Adds a job that has arrived."""
        if not self._free:
            self._grow()
        row = self._rows[job] = self._free.pop()
        self._views[job], self._logs[job] = view, log
        self._jobs[row], self._ends_s[row], self._counts[row] = job, math.inf, 0
        self._samples[row] = samples

    def remove(self, job: int) -> None:
        """Removes a job that has ended."""
        row = self._rows.pop(job)
        del self._views[job], self._logs[job]
        self._ends_s[row] = math.inf
        self._free.append(row)

    def put(self, view: JobView) -> None:
        """Replaces the view of a job after a change of it."""
        self._views[view.job] = view

    def settle(self, job: int, now_s: float, trained: float, rate: float) -> None:
        """Records the progress of a job, and its rate from now on."""
        row = self._rows[job]
        self._settled_s[row], self._trained[row], self._rates[row] = now_s, trained, rate

    def begin(self, job: int, blocks: int, ends_s: float) -> None:
        """A block of a job has begun; another begins at the end of each. blocks: number of its blocks that have ended.
        ends_s: inf: none is measured any more."""
        row = self._rows[job]
        self._counts[row], self._ends_s[row] = blocks, ends_s

    def views(self) -> tuple[JobView, ...]:
        """The views of all jobs, as they were put in or renewed last."""
        return tuple(self._views.values())

    def renew(self, now_s: float) -> None:
        """Makes the views of those jobs anew whose blocks have ended."""
        due = over = np.flatnonzero(self._ends_s <= now_s)
        while over.size:
            self._ends_s[over] += self._block_s
            self._counts[over] += 1
            over = over[self._ends_s[over] <= now_s]
        if not due.size:
            return
        trained = self._trained[due] + self._rates[due] * (now_s - self._settled_s[due])
        left = np.maximum(0.0, self._samples[due] - trained).tolist()
        views, logs = self._views, self._logs
        for job, count, rest in zip(self._jobs[due].tolist(), self._counts[due].tolist(), left, strict=True):
            old = views[job]
            views[job] = JobView(
                old.facts,
                BlockHistory(logs[job], count),
                old.running,
                old.granted_memory_bytes,
                old.started_s,
                now_s,
                rest,
                old.is_changing,
                old.ooms,
                old.restarts,
            )

    def _grow(self) -> None:
        rows = len(self._jobs)
        self._free = list(range(2 * rows - 1, rows - 1, -1))
        self._jobs, self._counts = (np.concatenate([one, np.zeros_like(one)]) for one in (self._jobs, self._counts))
        self._ends_s = np.concatenate([self._ends_s, np.full(rows, math.inf)])
        self._rates, self._settled_s, self._trained, self._samples = (
            np.concatenate([one, np.zeros(rows)])
            for one in (self._rates, self._settled_s, self._trained, self._samples)
        )
