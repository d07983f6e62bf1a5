"""What a policy last decided for the whole cluster, and what it asked for and did not get. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from benchmarks.simulator.cluster.views import ClusterView, JobView
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Capacity, JobId, JobOptions, Option

__all__ = ["CachedAllocation", "RefusedRequests"]

AGAIN_S = REFUSED_S = 300.0


class CachedAllocation:
    """Who gets what of a cluster, worked out anew when somebody came, went or changed, when an option did, and every
    AGAIN_S: what is left to train changes slowly."""

    def __init__(self, choose: Callable[[Sequence[JobOptions], Capacity], Mapping[JobId, int]]) -> None:
        self._choose = choose
        self._asked: object = None
        self._at_s = -math.inf
        self._known: Mapping[JobId, int] = {}

    def of(
        self, jobs: Sequence[JobOptions], capacity: Capacity, now_s: float, known: Sequence[object]
    ) -> Mapping[JobId, int]:
        """Index of the option each job gets. known: of each job, by which its options are seen to have changed."""
        asked = capacity, tuple((one.job, one.current) for one in jobs), tuple(known)
        if asked != self._asked or now_s - self._at_s >= AGAIN_S:
            self._known = self._choose(jobs, capacity)
            self._asked, self._at_s = asked, now_s
        return self._known


class RefusedRequests:
    """What was asked for and did not fit on the hosts is not asked for again for REFUSED_S. asked: last time."""

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
        """All of them when nothing would be left."""
        if not self._until_s:
            return options
        kept = tuple(one for one in options if (job.job, one.configuration) not in self._until_s)
        return kept or options
