"""The views of all jobs that have not ended, and in columns what changes with each of their blocks.

A view of every job is new after each of its blocks: millions of them in a simulation of thousands of jobs. So the
times, the numbers of blocks and the samples that are left are columns, and events of blocks are not needed.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.simulator.cluster.blocks.block_log import BlockLog
from benchmarks.simulator.cluster.blocks.job_views import JobViews
from benchmarks.simulator.cluster.progress import kernel
from benchmarks.simulator.cluster.progress.columns import JobColumns
from benchmarks.simulator.cluster.views import JobView

__all__ = ["JobTable"]


class JobTable:
    """One row for each job that has not ended, the same as in `JobColumns`."""

    def __init__(self, block_s: float, columns: JobColumns) -> None:
        """block_s: length of a block in seconds."""
        self._block_s, self._columns = block_s, columns
        self._indices: dict[int, int] = {}  # job -> its row
        self._views: dict[int, tuple[JobView, BlockLog]] = {}  # the last view of each job, in order of arrival
        self._arrivals: dict[int, int] = {}  # job -> number of its arrival
        self._waiting: dict[int, JobView] = {}
        self._order = np.zeros(0, dtype=np.int64)  # rows in order of arrival
        # the same as _views and _waiting; None: they have changed
        self._earlier: tuple[tuple[JobView, BlockLog], ...] | None = None
        self._waits: tuple[JobView, ...] | None = None
        self._ends_s = np.zeros(0)  # end of the present block; inf: none is being measured
        self._seen_s, self._left = np.zeros(0), np.zeros(0)  # of the present views
        self._counts = np.zeros(0, dtype=np.int64)  # blocks that have ended

    def add(self, index: int, view: JobView, log: BlockLog) -> None:
        """Adds a job that has arrived, with this row."""
        if index >= len(self._ends_s):
            self._grow()
        job = view.job
        self._indices[job] = index
        self._arrivals[job] = next(reversed(self._arrivals.values()), 0) + 1
        self._ends_s[index], self._counts[index] = math.inf, 0
        self._order = np.append(self._order, index)
        self._views[job] = view, log
        self.put(view)

    def remove(self, job: int) -> None:
        """Removes a job that has ended."""
        index = self._indices.pop(job)
        del self._views[job], self._arrivals[job]
        self._earlier = None
        if self._waiting.pop(job, None) is not None:
            self._waits = None
        self._ends_s[index] = math.inf
        self._order = self._order[self._order != index]

    def put(self, view: JobView) -> None:
        """Replaces the view of a job after a change of it."""
        job = view.job
        self._views[job], self._earlier = (view, self._views[job][1]), None
        self._seen_s[self._indices[job]] = view.seen_s
        if view.running is None:
            self._waiting[job], self._waits = view, None
        elif self._waiting.pop(job, None) is not None:
            self._waits = None

    def begin(self, job: int, blocks: int, ends_s: float) -> None:
        """A block of a job has begun; another begins at the end of each. blocks: number of its blocks that have ended.
        ends_s: inf: none is measured any more."""
        index = self._indices[job]
        self._counts[index], self._ends_s[index] = blocks, ends_s

    def views(self) -> JobViews:
        """The views of all jobs, as they were put in or renewed last."""
        if self._earlier is None:
            self._earlier = tuple(self._views.values())
        if self._waits is None:
            self._waits = tuple(self._waiting[job] for job in sorted(self._waiting, key=self._arrivals.__getitem__))
        order = self._order
        columns = self._seen_s[order], self._left[order], self._counts[order]
        return JobViews(self._earlier, columns, self._waits, self._keep)

    def _keep(self, old: JobView, view: JobView) -> None:
        """Keeps a view that was made, unless the job has changed or ended since."""
        known = self._views.get(view.job)
        if known is not None and known[0] is old:
            self._views[view.job], self._earlier = (view, known[1]), None

    def renew(self, now_s: float) -> None:
        """Finds the jobs whose blocks have ended; their views are new."""
        kernel.renew(now_s, self._block_s, self._ends_s, self._counts, self._seen_s, self._left, self._columns.rows)

    def _grow(self) -> None:
        more = len(self._columns.rows) - len(self._ends_s)
        self._ends_s = np.concatenate([self._ends_s, np.full(more, math.inf)])
        self._seen_s, self._left = (np.concatenate([one, np.zeros(more)]) for one in (self._seen_s, self._left))
        self._counts = np.concatenate([self._counts, np.zeros(more, dtype=np.int64)])
