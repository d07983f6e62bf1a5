"""Jobs that share hosts slow each other down: after a change on a host, the jobs there are advanced in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from benchmarks.simulator.cluster.hosts import Cluster
from benchmarks.simulator.cluster.job_run import JobRun
from benchmarks.simulator.cluster.progress import kernel
from benchmarks.simulator.cluster.progress.columns import JobColumns
from benchmarks.simulator.cluster.progress.event_queue import EventQueue
from benchmarks.simulator.cluster.settings import ClusterSettings

__all__ = ["Crowding"]

ROWS = 64  # of the buffers at first


class Crowding:
    """Keeps the interference of all jobs up to date."""

    def __init__(
        self,
        cluster: Cluster,
        columns: JobColumns,
        settings: ClusterSettings,
        queue: EventQueue,
        resumes: Callable[[JobRun, int], None],
    ) -> None:
        """resumes: schedules the end of a job's change or pause, with this order among events of the same time."""
        self._cluster, self._columns, self._settings = cluster, columns, settings
        self._queue, self._resumes = queue, resumes
        self._saved = np.zeros((ROWS, kernel.SAVED))
        self._found = np.zeros((ROWS, kernel.FOUND), dtype=np.int64)

    def place(self, run: JobRun) -> None:
        """Records the hosts of a job, after its placement has changed or one of them was lost."""
        columns, cluster, index = self._columns, self._cluster, run.index
        held = [(host, cluster.jobs[host][run.spec.job]) for host in run.placement if not cluster.is_down[host]]
        columns.counts[index] = len(held)
        for place, (host, cores) in enumerate(held):
            columns.hosts[index, place], columns.cores[index, place] = host, cores

    def update(self, hosts: Iterable[int], runs: Mapping[int, JobRun], now_s: float) -> None:
        """Updates the rates and the ends of all jobs on these hosts whose crowding has changed."""
        settings, columns, cluster = self._settings, self._columns, self._cluster
        if settings.interference <= 0:
            return
        jobs = sorted({job for host in hosts for job in cluster.jobs[host]})
        touched = [runs[job] for job in jobs if job in runs]
        if not touched:
            return
        if len(touched) > len(self._saved):
            self._saved = np.zeros((2 * len(touched), kernel.SAVED))
            self._found = np.zeros((2 * len(touched), kernel.FOUND), dtype=np.int64)
        changed, self._queue.order = kernel.crowd(
            now_s,
            settings.block_s,
            settings.interference,
            self._queue.order,
            np.array([run.index for run in touched], dtype=np.int64),
            columns.rows,
            columns.ends_s,
            columns.orders,
            columns.counts,
            columns.hosts,
            columns.cores,
            cluster.host_cores,
            cluster.free_core_array,
            self._saved,
            self._found,
        )
        found, states = self._found[:changed].tolist(), self._saved[:changed].tolist()
        for (place, blocks, is_judged, order), saved in zip(found, states, strict=True):
            run = touched[place]
            if blocks:
                run.end_blocks(saved, blocks)
            if (is_judged or run.recorder is not None) and saved[kernel.SAVED_SETTLED_S] < math.inf:
                run.note_progress(saved, now_s)
            run.event_version += 1
            if order:
                self._resumes(run, order)
