"""Elastic scheduling by search: adds workers step by step while they are worth their cost. Pure.

Or, Zhang and Freedman, "Resource elasticity in distributed deep learning", MLSys 2020 (the elastic scheduler with which
the DLRover-RM paper compares).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit, requested_memory
from benchmarks.simulator.policies.configurations import clamped
from benchmarks.simulator.policies.merged_observations import MergedObservations
from elastichost.tuner.facts import Configuration

__all__ = ["ElasticSchedulerPolicy"]

EFFICIENCY = 0.5
STEP_SHARE = 0.25
BLOCKS = 2  # blocks of a configuration before a decision


@dataclass(slots=True)
class _Search:
    """The search of one job. turned: the direction has changed already, so the next failed step ends the search."""

    direction: Literal[1, -1] = 1
    turned: bool = False
    is_over: bool = False
    before: Configuration | None = None  # the configuration before the present step


class ElasticSchedulerPolicy:
    """Searches the number of workers of each job.

    As the paper is understood here: the system measures the throughput R(k) with k workers, makes a step of d workers,
    measures again, and keeps the step if the new workers scale well enough,

        (R(k + d) - R(k)) / d  >=  s * R(k) / k,

    that is, if the throughput per cost has not fallen too far. Otherwise it returns to k and stops. If the very first
    step up is not worth its cost, it tries steps down by the same rule. PS and cores stay as the user requested. s =
    EFFICIENCY and d = STEP_SHARE of the workers (at least one) are chosen here, because the paper's constants are for
    GPUs that train ResNet.
    """

    name = "elastic_scheduler"

    def __init__(self) -> None:
        self._digests = MergedObservations()
        self._searches: dict[int, _Search] = {}

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self._digests.forget(view.ended)
        for one in view.ended:
            self._searches.pop(one.view.job, None)
        room = FreeCapacity(view)
        grants = admit(view, room, lambda job: Grant(job.request, job.requested_memory_bytes))
        for job in view.jobs:
            if job.running is None or job.is_changing:
                continue
            target = self._step(view, job, job.running, room)
            if target is not None and target != job.running:
                grants[job.job] = Grant(target, requested_memory(job, target))
        return grants

    def _step(
        self, view: ClusterView, job: JobView, running: Configuration, room: FreeCapacity
    ) -> Configuration | None:
        search = self._searches.setdefault(job.job, _Search())
        seen = self._digests.update(job)
        recent = job.observations[-BLOCKS:]
        if search.is_over or len(recent) < BLOCKS or any(one.configuration != running for one in recent):
            return None
        before = search.before
        if before is not None and before != running:
            added = running.workers - before.workers
            gained = seen[running].samples_per_s - seen[before].samples_per_s
            per_worker = seen[before].samples_per_s / before.workers
            is_worth = gained / added >= EFFICIENCY * per_worker  # for added < 0: of the workers that left
            if is_worth != (added > 0):
                search.is_over = search.turned or added < 0 or self._has_grown(job, before)
                search.direction, search.turned, search.before = -1, True, None
                return before if room.take(max(0, before.cores - running.cores), 0) else None
        step = max(1, round(STEP_SHARE * running.workers)) * search.direction
        target = clamped(
            view.limits, running.workers + step, running.servers, running.worker_cores, running.server_cores
        )
        if target == running or not room.take(max(0, target.cores - running.cores), 0):
            search.is_over = search.is_over or (target == running and search.direction < 0)
            return None
        search.before = running
        return target

    def _has_grown(self, job: JobView, before: Configuration) -> bool:
        """True if steps up were worth their cost before, so that steps down cannot be."""
        return before.workers > job.request.workers
