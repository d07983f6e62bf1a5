"""Hosts with cores and memory, and the placement of processes: first fit decreasing, a whole job or nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.simulator.cluster.views import HostView
from elastichost.tuner.facts import Configuration

__all__ = ["Cluster", "ClusterHost", "Placement", "ProcessDemand"]


class ClusterHost(msgspec.Struct, frozen=True):
    """The cores and the memory of one host."""

    cores: int
    memory_bytes: int


class ProcessDemand(msgspec.Struct, frozen=True, gc=False):
    """The cores and the memory that the processes of a job need. worker_bytes, server_bytes: per process."""

    configuration: Configuration
    worker_bytes: int
    server_bytes: int

    @classmethod
    def of(cls, configuration: Configuration, memory_bytes: int, worker_bytes: int) -> ProcessDemand:
        """Divides the memory of a job: each worker gets worker_bytes, and the PS share the rest evenly. If the rest
        does not suffice, all processes get the same."""
        rest = memory_bytes - configuration.workers * worker_bytes
        if rest < configuration.servers:
            each = memory_bytes // (configuration.workers + configuration.servers)
            return cls(configuration, each, each)
        return cls(configuration, worker_bytes, rest // configuration.servers)


# host -> (workers, PS) of one job there; hosts without any are left out
Placement = dict[int, tuple[int, int]]


class Cluster:
    """The free cores and memory of each host. is_down: hosts that have failed; no process is placed there."""

    def __init__(self, hosts: Sequence[ClusterHost]) -> None:
        self.hosts = tuple(hosts)
        self.free_cores = [host.cores for host in hosts]
        self.free_memory = [host.memory_bytes for host in hosts]
        self.is_down = [False] * len(hosts)
        self.jobs: list[dict[int, int]] = [{} for _ in hosts]  # host -> job -> its cores on that host

    def views(self) -> tuple[HostView, ...]:
        rows = zip(self.hosts, self.free_cores, self.free_memory, self.is_down, strict=True)
        return tuple(
            HostView(0, 0, 0, 0) if is_down else HostView(host.cores, host.memory_bytes, cores, memory)
            for host, cores, memory, is_down in rows
        )

    def place(self, job: int, need: ProcessDemand) -> Placement | None:
        """Places all processes of a job. None: they do not fit, and nothing was changed."""
        wanted = self._fit(need, need.configuration.workers, need.configuration.servers, {})
        if wanted is not None:
            self._take(job, need, wanted)
        return wanted

    def move(self, job: int, old: ProcessDemand, placement: Placement, new: ProcessDemand) -> Placement | None:
        """Changes a job from one need to another. Processes with the same cores stay on their hosts as far as they
        still fit. None: the new need does not fit, and nothing was changed."""
        self.release(job, old, placement)
        kept: Placement = {}
        workers, servers = new.configuration.workers, new.configuration.servers
        may_stay = (
            old.configuration.worker_cores == new.configuration.worker_cores,
            old.configuration.server_cores == new.configuration.server_cores,
        )
        for host in sorted(placement):
            if self.is_down[host]:
                continue
            stay_workers = min(placement[host][0], workers) if may_stay[0] else 0
            stay_servers = min(placement[host][1], servers) if may_stay[1] else 0
            stay_servers = min(stay_servers, self._room(host, new, is_server=True))
            left = (self.free_cores[host] - stay_servers * new.configuration.server_cores) // max(
                1, new.configuration.worker_cores
            )
            memory_left = self.free_memory[host] - stay_servers * new.server_bytes
            stay_workers = max(0, min(stay_workers, left, memory_left // max(1, new.worker_bytes)))
            if stay_workers or stay_servers:
                kept[host] = (stay_workers, stay_servers)
                workers, servers = workers - stay_workers, servers - stay_servers
        wanted = self._fit(new, workers, servers, kept)
        if wanted is None:
            self._take(job, old, {host: count for host, count in placement.items() if not self.is_down[host]})
            return None
        self._take(job, new, wanted)
        return wanted

    def release(self, job: int, need: ProcessDemand, placement: Placement) -> None:
        """Frees the cores and the memory of a job."""
        for host, (workers, servers) in placement.items():
            if self.is_down[host]:
                continue
            self.free_cores[host] += _cores(need, workers, servers)
            self.free_memory[host] += workers * need.worker_bytes + servers * need.server_bytes
            del self.jobs[host][job]

    def fail(self, host: int) -> tuple[int, ...]:
        """Removes a host and all its processes. Returns the jobs that had processes on it."""
        self.is_down[host] = True
        lost = tuple(sorted(self.jobs[host]))
        self.jobs[host] = {}
        self.free_cores[host] = self.free_memory[host] = 0
        return lost

    def repair(self, host: int) -> None:
        """Brings a host back, without processes."""
        self.is_down[host] = False
        self.free_cores[host], self.free_memory[host] = self.hosts[host].cores, self.hosts[host].memory_bytes

    def crowding(self, job: int, placement: Placement) -> float:
        """The share of the cores of the job's hosts that other jobs use, weighted by the job's own cores on each host;
        0 to 1."""
        own = others = 0.0
        for host in placement:
            here = self.jobs[host].get(job, 0)
            taken = self.hosts[host].cores - self.free_cores[host] - here
            own += here
            others += here * taken / self.hosts[host].cores
        return others / own if own else 0.0

    def _room(self, host: int, need: ProcessDemand, *, is_server: bool) -> int:
        """The number of processes of a role that fit on a host."""
        cores = need.configuration.server_cores if is_server else need.configuration.worker_cores
        memory = need.server_bytes if is_server else need.worker_bytes
        return min(self.free_cores[host] // cores, self.free_memory[host] // max(1, memory))

    def _fit(self, need: ProcessDemand, workers: int, servers: int, kept: Placement) -> Placement | None:
        """Adds `workers` and `servers` processes to the kept ones by first fit; the role that needs the larger share of
        a host is placed first. None: they do not fit."""
        c = need.configuration
        host = self.hosts[0]
        worker_size = max(c.worker_cores / host.cores, need.worker_bytes / host.memory_bytes)
        server_size = max(c.server_cores / host.cores, need.server_bytes / host.memory_bytes)
        found = dict(kept)
        for is_server in (True, False) if server_size >= worker_size else (False, True):
            left = servers if is_server else workers
            cores, memory = (c.server_cores, need.server_bytes) if is_server else (c.worker_cores, need.worker_bytes)
            for index, free in enumerate(self.free_cores):
                if left == 0:
                    break
                if free < cores:
                    continue
                has = found.get(index, (0, 0))
                room = min(
                    (free - _cores(need, *has)) // cores,
                    (self.free_memory[index] - has[0] * need.worker_bytes - has[1] * need.server_bytes)
                    // max(1, memory),
                    left,
                )
                if room > 0:
                    found[index] = (has[0], has[1] + room) if is_server else (has[0] + room, has[1])
                    left -= room
            if left:
                return None
        return found

    def _take(self, job: int, need: ProcessDemand, placement: Placement) -> None:
        for host, (workers, servers) in placement.items():
            cores = _cores(need, workers, servers)
            self.free_cores[host] -= cores
            self.free_memory[host] -= workers * need.worker_bytes + servers * need.server_bytes
            self.jobs[host][job] = cores


def _cores(need: ProcessDemand, workers: int, servers: int) -> int:
    return workers * need.configuration.worker_cores + servers * need.configuration.server_cores
