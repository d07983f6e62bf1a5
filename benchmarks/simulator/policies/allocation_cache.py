"""The last decision of a policy for the whole cluster. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from elastichost.tuner.placement.allocation import Capacity, JobId, JobOptions

__all__ = ["CachedAllocation"]

AGAIN_S = 300.0  # age of an allocation at which it is computed again


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
