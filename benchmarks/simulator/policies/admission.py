"""Who begins to run: waiting jobs in order of arrival, from cores and memory that are free. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from elastichost.tuner.facts import Configuration

__all__ = ["FreeCapacity", "admit", "least_servers", "make_way", "requested_memory"]


class FreeCapacity:
    """Cores and memory that nobody has yet, of the whole cluster. Whether they are on one host the simulator knows."""

    def __init__(self, view: ClusterView) -> None:
        self.cores, self.memory_bytes = view.free_cores, view.free_memory_bytes

    def take(self, cores: int, memory_bytes: int) -> bool:
        """False, and nothing is taken, when there is not so much."""
        if cores > self.cores or memory_bytes > self.memory_bytes:
            return False
        self.cores, self.memory_bytes = self.cores - cores, self.memory_bytes - memory_bytes
        return True


def admit(view: ClusterView, room: FreeCapacity, first: Callable[[JobView], Grant]) -> dict[int, Grant]:
    """Starts what waits, in order of arrival; what does not fit is passed by, as Kubernetes does with pods."""
    grants = {}
    for job in view.jobs:
        if job.running is None:
            grant = first(job)
            if room.take(grant.configuration.cores, grant.memory_bytes):
                grants[job.job] = grant
    return grants


def make_way(
    view: ClusterView, started: Mapping[int, Grant], first: Callable[[JobView], Grant], cores: int
) -> dict[int, Grant]:
    """Starts what still waits beside `started`, in order of arrival, from cores that running jobs can give up."""
    grants = {}
    for job in view.jobs:
        if job.running is None and job.job not in started:
            grant = first(job)
            if grant.configuration.cores <= cores:
                cores -= grant.configuration.cores
                grants[job.job] = grant
    return grants


def requested_memory(job: JobView, configuration: Configuration) -> int:
    """What the user asked for, and the private memory of processes that the user did not ask for."""
    workers = max(0, configuration.workers - job.request.workers) * job.facts.worker_bytes
    servers = max(0, configuration.servers - job.request.servers) * job.facts.server_bytes
    return job.requested_memory_bytes + workers + servers


def least_servers(view: ClusterView, memory_bytes: int) -> int:
    """PS that so much memory needs, when one PS has half a host's at most: whole hosts are hardly ever free."""
    most = max((host.memory_bytes for host in view.hosts), default=0)
    return max(1, math.ceil(2 * memory_bytes / most)) if most else 1
