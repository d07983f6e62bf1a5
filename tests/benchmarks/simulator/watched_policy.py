"""A wrapper that records and checks the decisions of a policy, and the cluster of its tests."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.simulator.cluster.hosts import ClusterHost
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.cluster.settings import ClusterSettings
from benchmarks.simulator.cluster.views import ClusterView, Grant, InformedPolicy, JobFaults, Policy

__all__ = ["QUIET", "Watched", "cluster"]

GB = 10**9
QUIET = IncidentRates(0.0, 0.0, 0.0, 0.0)


def cluster(hosts: int, rates: IncidentRates = QUIET) -> ClusterSettings:
    """Settings of a cluster of hosts with 64 cores and 256 GB each."""
    return ClusterSettings(hosts=(ClusterHost(64, 256 * GB),) * hosts, rates=rates)


class Watched:
    """Wraps a policy, records its views and grants, and fails if the grants together need more cores than are free."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name = policy.name
        self.seen: list[tuple[ClusterView, dict[int, Grant]]] = []

    def hear(self, ailing: Mapping[int, JobFaults]) -> None:
        if isinstance(self._policy, InformedPolicy):
            self._policy.hear(ailing)

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        grants = self._policy.decide(view, now_s)
        known = {one.job: one for one in view.jobs}
        assert set(grants) <= set(known), "grants must be for jobs of the view"
        more = sum(
            grant.configuration.cores - (running.cores if (running := known[job].running) else 0)
            for job, grant in grants.items()
            if grant is not None
        )
        assert more <= view.free_cores, "the grants together need more cores than are free"
        self.seen.append((view, {job: grant for job, grant in grants.items() if grant is not None}))
        return grants

    def configurations(self, job: int) -> list[tuple[int, int, int, int]]:
        """The configurations that were granted to a job, in order, without repetitions."""
        found: list[tuple[int, int, int, int]] = []
        for _, grants in self.seen:
            if job in grants:
                c = grants[job].configuration
                row = (c.workers, c.servers, c.worker_cores, c.server_cores)
                if not found or found[-1] != row:
                    found.append(row)
        return found
