"""Starts waiting jobs in order of arrival, with free cores and memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from elastichost.tuner.facts import Configuration

__all__ = ["FreeCapacity", "admit", "least_servers", "make_way", "requested_memory"]


class FreeCapacity:
    """The free cores and memory of the whole cluster. Only the simulator knows whether they are on one host."""

    def __init__(self, view: ClusterView) -> None:
        self.cores, self.memory_bytes = view.free_cores, view.free_memory_bytes

    def take(self, cores: int, memory_bytes: int) -> bool:
        """Takes cores and memory, and returns True; returns False and takes nothing if less is free."""
        if cores > self.cores or memory_bytes > self.memory_bytes:
            return False
        self.cores, self.memory_bytes = self.cores - cores, self.memory_bytes - memory_bytes
        return True


def admit(view: ClusterView, room: FreeCapacity, first: Callable[[JobView], Grant]) -> dict[int, Grant]:
    """Starts waiting jobs in order of arrival. A job that does not fit is skipped, as Kubernetes does with pods."""
    grants = {}
    for job in view.waiting:
        grant = first(job)
        if room.take(grant.configuration.cores, grant.memory_bytes):
            grants[job.job] = grant
    return grants


def make_way(
    view: ClusterView, started: Mapping[int, Grant], first: Callable[[JobView], Grant], cores: int
) -> dict[int, Grant]:
    """Starts jobs that wait and are not in `started`, in order of arrival, on cores that running jobs can give up."""
    grants = {}
    for job in view.waiting:
        if job.job not in started:
            grant = first(job)
            if grant.configuration.cores <= cores:
                cores -= grant.configuration.cores
                grants[job.job] = grant
    return grants


def requested_memory(job: JobView, configuration: Configuration) -> int:
    """Bytes that the user requested, plus the private memory of processes that the user did not request."""
    workers = max(0, configuration.workers - job.request.workers) * job.facts.worker_bytes
    servers = max(0, configuration.servers - job.request.servers) * job.facts.server_bytes
    return job.requested_memory_bytes + workers + servers


def least_servers(view: ClusterView, memory_bytes: int) -> int:
    """The least number of PS for this memory. One PS gets at most half the memory of a host, because whole hosts are
    rarely free."""
    most = max((host.memory_bytes for host in view.hosts), default=0)
    return max(1, math.ceil(2 * memory_bytes / most)) if most else 1
