"""Optimus: adds workers and PS one by one where one more saves most time for its share of the cluster. Pure.

Peng, Bao, Chen, Wu and Guo, "Optimus: an efficient dynamic resource scheduler for deep learning clusters", EuroSys
2018.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit, least_servers, make_way, requested_memory
from benchmarks.simulator.policies.configurations import clamped
from benchmarks.simulator.policies.merged_observations import MergedObservations
from elastichost.tuner.facts import Configuration
from elastichost.tuner.models.registry import fit

__all__ = ["OptimusPolicy"]

INTERVAL_S = 300.0
PROBES = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))  # workers, servers
ENOUGH_SAMPLES = 3  # least number of sample runs of a job that finds no room for the others
YOUNG, YOUNG_SHARE = 0.95, 0.1


class OptimusPolicy:
    """Section 4.1: every job has one worker and one PS. Then the job with the largest marginal gain repeatedly gets one
    more worker or PS, whichever gains most, until nothing is left or nothing gains. With remaining work Q, speed f(p,
    w) and dominant share O of one process (its largest share of any resource),

        gain of a worker = (Q / f(p, w) - Q / f(p, w + 1)) / O_worker, and likewise for a PS.

    Section 3.2: the speed function is fitted online (`published.optimus`), at first to a few sample runs with small
    numbers of workers and PS. Section 4.1: the gain of a job in its first tenth, which has bad predictions, is
    multiplied by YOUNG. Cores and memory of a process are those of the user; Optimus chooses numbers only. The paper
    decides every 10 minutes; here it decides twice as often, and jobs start when they arrive. A sample run trains the
    job for one block; the paper discards its sample runs.
    """

    name = "optimus"

    def __init__(self) -> None:
        self._digests = MergedObservations()
        self._speeds: dict[int, tuple[tuple[int, int], npt.NDArray[np.float64]]] = {}
        self._decided_s = -INTERVAL_S

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self._digests.forget(view.ended)
        for one in view.ended:
            self._speeds.pop(one.view.job, None)
        room = FreeCapacity(view)
        grants = admit(view, room, lambda job: self._first(view, job))
        grants |= self._probe(view, room)
        if now_s - self._decided_s >= INTERVAL_S:
            self._decided_s = now_s
            grants |= self._share_out(view, room, grants)
        return grants

    def _first(self, view: ClusterView, job: JobView) -> Grant:
        return self._grant(job, self._configuration(view, job, *PROBES[0]))

    def _configuration(self, view: ClusterView, job: JobView, workers: int, servers: int) -> Configuration:
        servers = max(servers, least_servers(view, job.requested_memory_bytes))
        return clamped(view.limits, workers, servers, job.request.worker_cores, job.request.server_cores)

    def _grant(self, job: JobView, configuration: Configuration) -> Grant:
        return Grant(configuration, requested_memory(job, configuration))

    def _probe(self, view: ClusterView, room: FreeCapacity) -> dict[int, Grant]:
        """The next sample run of the jobs that have not had all of them; each lasts one block."""
        grants = {}
        for job in view.jobs:
            if job.running is None or job.is_changing:
                continue
            target = self._next_probe(view, job)
            if target is None or job.running not in self._digests.update(job):
                continue
            if room.take(max(0, target.cores - job.running.cores), 0):
                grants[job.job] = self._grant(job, target)
        return grants

    def _next_probe(self, view: ClusterView, job: JobView) -> Configuration | None:
        """The next sample run of the job; None: it has had all of them."""
        seen = self._digests.update(job)
        probes = (self._configuration(view, job, *probe) for probe in PROBES)
        return next((probe for probe in probes if probe not in seen), None)

    def _share_out(self, view: ClusterView, room: FreeCapacity, started: Mapping[int, Grant]) -> dict[int, Grant]:
        """Section 4.1 for the jobs with enough sample runs for a fit. The other jobs keep what they have, and waiting
        jobs get their first worker and PS."""
        movable = [job for job in view.jobs if job.running is not None and not job.is_changing]
        movable = [job for job in movable if job.job not in started]
        jobs = [
            job
            for job in movable
            if self._next_probe(view, job) is None or len(self._digests.update(job)) >= ENOUGH_SAMPLES
        ]
        first = {job.job: self._configuration(view, job, *PROBES[0]) for job in jobs}
        given = {number: [one.workers, one.servers] for number, one in first.items()}
        cores = room.cores + sum(job.running.cores for job in jobs if job.running is not None)
        cores -= sum(one.cores for one in first.values())
        begun = make_way(view, started, lambda job: self._first(view, job), cores)
        cores -= sum(grant.configuration.cores for grant in begun.values())
        memory = room.memory_bytes
        tables = {job.job: self._table(view, job) for job in jobs}
        by_job = {job.job: job for job in jobs}
        heap: list[tuple[float, int, int]] = []
        for job in jobs:
            self._offer(heap, view, job, tables[job.job], given[job.job])
        while heap:
            _, number, role = heapq.heappop(heap)
            job, has = by_job[number], given[number]
            needed = job.request.server_cores if role else job.request.worker_cores
            bytes_needed = (job.facts.server_bytes if role else job.facts.worker_bytes) * (
                has[role] >= (job.request.servers if role else job.request.workers)
            )
            if needed > cores or bytes_needed > memory:
                continue
            cores, memory = cores - needed, memory - bytes_needed
            has[role] += 1
            self._offer(heap, view, job, tables[number], has)
        shared = {job.job: self._grant(job, self._configuration(view, job, *given[job.job])) for job in jobs}
        return shared | begun

    def _table(self, view: ClusterView, job: JobView) -> npt.NDArray[np.float64]:
        """Predicted speeds in samples/s, float64 [workers, servers], from 1 process on; computed again after new
        observations."""
        seen = self._digests.update(job)
        key = MergedObservations.age(job, seen)
        known = self._speeds.get(job.job)
        if known is not None and known[0] == key:
            return known[1]
        most, request = view.limits.most, job.request
        workers, servers = np.meshgrid(np.arange(1, most.workers + 1), np.arange(1, most.servers + 1), indexing="ij")
        cores = np.full(workers.size, float(request.worker_cores)), np.full(workers.size, float(request.server_cores))
        array = np.stack([workers.ravel(), servers.ravel(), *cores], axis=1).astype(np.float64)
        fitted = fit("optimus", job.workload, tuple(seen.values()))
        table = np.maximum(fitted.predict(array).samples_per_s, 1e-9).reshape(workers.shape)
        self._speeds[job.job] = key, table
        return table

    def _offer(
        self,
        heap: list[tuple[float, int, int]],
        view: ClusterView,
        job: JobView,
        table: npt.NDArray[np.float64],
        has: list[int],
    ) -> None:
        """Puts the process that gains most for this job into the heap, if any gains. Called again after the job has got
        it."""
        workers, servers = has
        now_s = job.samples_left / table[workers - 1, servers - 1]
        best = None
        for role, size in ((0, job.request.worker_cores), (1, job.request.server_cores)):
            place = (workers, servers - 1) if role == 0 else (workers - 1, servers)
            if place[0] >= table.shape[0] or place[1] >= table.shape[1]:
                continue
            private = job.facts.server_bytes if role else job.facts.worker_bytes
            share = max(size / max(1, view.cores), private / max(1, view.memory_bytes))
            gain = (now_s - job.samples_left / table[place]) / share
            is_young = job.samples_left > (1 - YOUNG_SHARE) * job.features.samples
            gain *= YOUNG if is_young else 1.0
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, role
        if best is not None:
            heapq.heappush(heap, (-float(best[0]), job.job, best[1]))
