"""The Optimal Resource Allocator: an integer program that maximises the progress of all jobs in the next period. Pure.

Hu, Zhu, Zhou, Cheng, Bai and Zhang, "An optimal resource allocator of elastic training for deep learning jobs on
cloud", arXiv 2109.03389, 2021.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit, least_servers, requested_memory
from benchmarks.simulator.policies.configurations import clamped
from benchmarks.simulator.policies.integer_programs.division import divided
from benchmarks.simulator.policies.integer_programs.predictions import PredictedOptions, Predictions
from elastichost.tuner.facts import Configuration

__all__ = ["OptimalAllocatorPolicy", "progress_of"]

INTERVAL_S = 300.0
PROBES = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))  # workers and PS of the profiling runs
ENOUGH = 3  # least number of profiling runs of a job that finds no room for the others
EVERYTHING = (10**6, 10**6)
TIME_LIMIT_S = 10.0
Floats = npt.NDArray[np.float64]


class OptimalAllocatorPolicy:
    """As the paper is understood here: every period of T seconds a mixed-integer program chooses the number of nodes of
    each job between a least and a largest number, so that the training progress of all jobs together is largest,

        maximise  sum_i min(1, T v_i(n_i) / left_i),   sum_i n_i <= nodes,

    v_i(n) being the speed of job i on n nodes (from its estimated time of arrival, ETA, which the paper profiles) and
    left_i what it has left. Waiting jobs take part with their least number. So jobs with little left come first, and no
    job gets more than it can use up.

    Differences from the paper: its nodes are workers and PS here, each with the cores that the user requested, and the
    speeds come from a model that is fitted to short profiling runs (PROBES, one block each) and then to all
    measurements. The models of Optimus and of DLRover-RM were tried, and the better one (DLRover-RM's) is used. A job
    that runs keeps at least one node. Users' preferences and prices are left out.
    """

    name = "optimal_allocator"

    def __init__(self) -> None:
        self._predictions = Predictions("dlrover_rm")
        self._decided_s = -INTERVAL_S

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self._predictions.forget(view.ended)
        room = FreeCapacity(view)
        grants = admit(view, room, lambda job: self._first(view, job))
        if now_s - self._decided_s >= INTERVAL_S or view.trigger != "tick":
            self._decided_s = now_s
            grants |= self._share_out(view, grants)
            room = _left(view, grants)
        return grants | self._profile(view, room, grants)

    def _configuration(self, view: ClusterView, job: JobView, workers: int, servers: int) -> Configuration:
        servers = max(servers, least_servers(view, job.requested_memory_bytes))
        return clamped(view.limits, workers, servers, job.request.worker_cores, job.request.server_cores)

    def _grant(self, job: JobView, configuration: Configuration) -> Grant:
        return Grant(configuration, requested_memory(job, configuration))

    def _first(self, view: ClusterView, job: JobView) -> Grant:
        return self._grant(job, self._configuration(view, job, *PROBES[0]))

    def _profile(self, view: ClusterView, room: FreeCapacity, granted: Mapping[int, Grant]) -> dict[int, Grant]:
        """The next profiling run of each job that was measured in all earlier ones, where there is room."""
        found = {}
        for job in view.jobs:
            if job.running is None or job.is_changing or job.job in granted:
                continue
            target = self._next(view, job)
            if target is None or job.running not in self._predictions.seen(job):
                continue
            if room.take(max(0, target.cores - job.running.cores), 0):
                found[job.job] = self._grant(job, target)
        return found

    def _next(self, view: ClusterView, job: JobView) -> Configuration | None:
        seen = self._predictions.seen(job)
        probes = (self._configuration(view, job, *probe) for probe in PROBES)
        return next((probe for probe in probes if probe not in seen), None)

    def _share_out(self, view: ClusterView, started: Mapping[int, Grant]) -> dict[int, Grant]:
        jobs = []
        for job in view.jobs:
            if job.running is None or job.is_changing or not job.observations:
                continue
            if self._next(view, job) is not None and len(self._predictions.seen(job)) < ENOUGH:
                continue
            options = self._predictions.of(view, job, job.running, EVERYTHING)
            jobs.append((job, options, progress_of(options, job.samples_left)))
        return divided(view, jobs, started, lambda job: self._first(view, job), 1.0, TIME_LIMIT_S)


def progress_of(options: PredictedOptions, samples_left: float) -> Floats:
    """The share of what is left that each option trains in one period, float64 [n]."""
    found: Floats = np.minimum(1.0, INTERVAL_S * options.speeds / max(samples_left, 1.0))
    return found


def _left(view: ClusterView, grants: Mapping[int, Grant]) -> FreeCapacity:
    """What the grants leave free."""
    room = FreeCapacity(view)
    running = {job.job: job for job in view.jobs}
    for name, grant in grants.items():
        before = running[name].running
        room.cores -= grant.configuration.cores - (before.cores if before is not None else 0)
        room.memory_bytes -= grant.memory_bytes - running[name].granted_memory_bytes
    return room
