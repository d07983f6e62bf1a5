"""The last decision of a policy for the whole cluster, and the requests that the hosts refused. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from benchmarks.simulator.cluster.views import ClusterView, JobView
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Capacity, JobId, JobOptions, Option

__all__ = ["CachedAllocation", "RefusedRequests"]

AGAIN_S = REFUSED_S = 300.0  # age of an allocation at which it is computed again; time without a refused request


class CachedAllocation:
    """The allocation of a cluster. It is computed again when a job or an option came, ended or changed, and every
    AGAIN_S, because the samples that are left change slowly."""

    def __init__(self, choose: Callable[[Sequence[JobOptions], Capacity], Mapping[JobId, int]]) -> None:
        self._choose = choose
        self._asked: object = None
        self._at_s = -math.inf
        self._known: Mapping[JobId, int] = {}

    def of(
        self, jobs: Sequence[JobOptions], capacity: Capacity, now_s: float, known: Sequence[object]
    ) -> Mapping[JobId, int]:
        """Returns the index of the option that each job gets. known: a value for each job that changes with its
        options."""
        asked = capacity, tuple((one.job, one.current) for one in jobs), tuple(known)
        if asked != self._asked or now_s - self._at_s >= AGAIN_S:
            self._known = self._choose(jobs, capacity)
            self._asked, self._at_s = asked, now_s
        return self._known


class RefusedRequests:
    """Configurations that were requested and did not fit on the hosts. A policy does not request them again for
    REFUSED_S. asked: the requests of the last decision."""

    def __init__(self) -> None:
        self.asked: Mapping[int, Configuration] = {}
        self._until_s: dict[tuple[int, Configuration], float] = {}

    def note(self, view: ClusterView, now_s: float) -> None:
        self._until_s = {key: until_s for key, until_s in self._until_s.items() if until_s > now_s}
        for job in view.jobs:
            asked = self.asked.get(job.job)
            if asked is not None and asked != job.running:
                self._until_s[job.job, asked] = now_s + REFUSED_S

    def without(self, job: JobView, options: tuple[Option, ...]) -> tuple[Option, ...]:
        """Returns the options without refused ones; all options if none would be left."""
        if not self._until_s:
            return options
        kept = tuple(one for one in options if (job.job, one.configuration) not in self._until_s)
        return kept or options
