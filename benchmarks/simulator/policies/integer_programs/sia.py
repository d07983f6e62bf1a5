"""Sia-like: an integer program over jobs and configurations that weighs powers of normalised goodput. Pure.

Jayaram Subramanya, Arfeen, Lin, Qiao, Jia and Ganger, "Sia: heterogeneity-aware, goodput-optimized ML-cluster
scheduling", SOSP 2023.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit, least_servers, requested_memory
from benchmarks.simulator.policies.configurations import clamped
from benchmarks.simulator.policies.integer_programs.division import divided
from benchmarks.simulator.policies.integer_programs.predictions import SMALLEST, PredictedOptions, Predictions, Reach
from elastichost.tuner.facts import Configuration

__all__ = ["SiaPolicy", "restart_factor", "values_of"]

INTERVAL_S = 60.0
POWER = -0.5
UNALLOCATED = 1.1
RESTART_S = 5.0  # the restart cost S: a change costs seconds here; with 30 s, as in Pollux's evaluation, it is slower
TIME_LIMIT_S = 10.0
Floats = npt.NDArray[np.float64]


class SiaPolicy:
    """Section 3.4 of the paper: every 60 s it solves the integer program over the matrix A of jobs i and configurations
    j,

        minimise  sum_ij A_ij (r_ij G_ij)^p + lambda sum_i (1 - sum_j A_ij),   p = -0.5, lambda = 1.1,

    within the capacity. G_ij is the goodput of job i in configuration j over its least goodput in any of them. r_ij is
    1 for the present configuration, else the restart factor (T - N S) / (T + S) of a job of age T that restarted N
    times and needs S seconds for a restart. A negative power is the fair choice: jobs gain less the more they have.
    Section 3.3 and 3.4: a job starts in the smallest configuration, and grows at most to twice its processes in one
    round, so that its model is fitted step by step.

    Differences from Sia: one kind of processor; no rigid and no hybrid parallel jobs; batch sizes are those of the
    users, so goodput is throughput. A configuration is a number of workers and of PS, with the cores per process that
    the user requested, because a replica of Sia is a user's too. Its model of a GPU replica knows no PS; the models of
    Optimus and of DLRover-RM, which know them, were tried, and the better one (DLRover-RM's) is used. A configuration
    with cores of its own choice was tried, and is not better. Jobs cannot be taken off the
    cluster once they run, so each keeps at least one configuration.
    """

    name = "sia"

    def __init__(self) -> None:
        self._predictions = Predictions("dlrover_rm")
        self._changed: dict[int, int] = {}  # number of changes of a job
        self._most: dict[int, Reach] = {}  # the most workers and PS that a job has had
        self._decided_s = -INTERVAL_S

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self._predictions.forget(view.ended)
        for one in view.ended:
            self._changed.pop(one.view.job, None)
            self._most.pop(one.view.job, None)
        room = FreeCapacity(view)
        grants = admit(view, room, lambda job: self._first(view, job))
        if now_s - self._decided_s >= INTERVAL_S:
            self._decided_s = now_s
            grants |= self._share_out(view, grants, now_s)
        return grants

    def _first(self, view: ClusterView, job: JobView) -> Grant:
        workers, servers = SMALLEST
        servers = max(servers, least_servers(view, job.requested_memory_bytes))
        one = clamped(view.limits, workers, servers, job.request.worker_cores, job.request.server_cores)
        return Grant(one, requested_memory(job, one))

    def _share_out(self, view: ClusterView, started: Mapping[int, Grant], now_s: float) -> dict[int, Grant]:
        jobs = []
        for job in view.jobs:
            if job.running is not None and not job.is_changing and job.observations:
                options = self._predictions.of(view, job, job.running, self._reach(job, job.running))
                factor = restart_factor(now_s - job.arrived_s, self._changed.get(job.job, 0), RESTART_S)
                jobs.append((job, options, values_of(options, factor)))
        # a waiting job gets its smallest configuration, in which its goodput is 1
        found = divided(view, jobs, started, lambda job: self._first(view, job), UNALLOCATED - 1.0, TIME_LIMIT_S)
        for job, _, _ in jobs:
            self._changed[job.job] = self._changed.get(job.job, 0) + (job.job in found)
        return found

    def _reach(self, job: JobView, running: Configuration) -> Reach:
        before = self._most.get(job.job, SMALLEST)
        most = max(before[0], running.workers), max(before[1], running.servers)
        self._most[job.job] = most
        return 2 * most[0], 2 * most[1]


def restart_factor(age_s: float, restarts: int, restart_s: float) -> float:
    """The factor on the goodput of other configurations, from a hundredth to 1."""
    return max(0.01, (age_s - restarts * restart_s) / (age_s + restart_s))


def values_of(options: PredictedOptions, factor: float) -> Floats:
    """The values of the options of a job, float64 [n]: what its allocation takes from the objective. The present
    configuration has no restart factor."""
    goodput = options.speeds / options.speeds.min()
    weighed = goodput * factor
    weighed[options.present] = goodput[options.present]
    found: Floats = UNALLOCATED - np.power(weighed, POWER)
    return found
