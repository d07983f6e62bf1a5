"""Hosts with cores and memory, and the placement of processes: first fit decreasing, a whole job or nothing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import HostTotals, HostView
from elastichost.tuner.facts import Configuration

__all__ = ["Cluster", "ClusterHost", "Placement", "ProcessDemand"]


class ClusterHost(msgspec.Struct, frozen=True):
    """The cores and the memory of one host. core_speed: of one of its cores, relative to a usual one."""

    cores: int
    memory_bytes: int
    core_speed: float = 1.0


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
    """The free cores and memory of each host. is_down: hosts that have failed; no process is placed there. host_cores,
    free_core_array: all cores and the free ones, int64 [hosts]."""

    def __init__(self, hosts: Sequence[ClusterHost]) -> None:
        self.hosts = tuple(hosts)
        self.free_cores = [host.cores for host in hosts]
        self.free_memory = [host.memory_bytes for host in hosts]
        self.is_down = [False] * len(hosts)
        self.jobs: list[dict[int, int]] = [{} for _ in hosts]  # host -> job -> its cores on that host
        self._largest = max(hosts, key=lambda host: (host.cores, host.memory_bytes), default=ClusterHost(1, 1))
        self.host_cores = np.array([host.cores for host in hosts], dtype=np.int64)
        # the same numbers as free_cores and free_memory, to look for free hosts among thousands
        self.free_core_array = np.array(self.free_cores, dtype=np.int64)
        self._memory = np.array(self.free_memory, dtype=np.int64)
        self._totals = [int(self.host_cores.sum()), sum(self.free_memory), sum(self.free_cores), sum(self.free_memory)]
        self._views = [self._view(index) for index in range(len(hosts))]
        self._seen = tuple(self._views)
        self._changed: set[int] = set()  # hosts whose views must be made anew

    def views(self) -> tuple[HostView, ...]:
        if self._changed:
            for index in self._changed:
                self._views[index] = self._view(index)
            self._changed.clear()
            self._seen = tuple(self._views)
        return self._seen

    def totals(self) -> HostTotals:
        return HostTotals(*self._totals)

    def _view(self, index: int) -> HostView:
        host = self.hosts[index]
        if self.is_down[index]:
            return HostView(0, 0, 0, 0, host.core_speed)
        free_cores, free_memory = self.free_cores[index], self.free_memory[index]
        return HostView(host.cores, host.memory_bytes, free_cores, free_memory, host.core_speed)

    def _set(self, index: int, free_cores: int, free_memory: int) -> None:
        self._totals[2] += free_cores - self.free_cores[index]
        self._totals[3] += free_memory - self.free_memory[index]
        self.free_cores[index], self.free_memory[index] = free_cores, free_memory
        self.free_core_array[index], self._memory[index] = free_cores, free_memory
        self._changed.add(index)

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
            memory = workers * need.worker_bytes + servers * need.server_bytes
            self._set(host, self.free_cores[host] + _cores(need, workers, servers), self.free_memory[host] + memory)
            del self.jobs[host][job]

    def fail(self, host: int) -> tuple[int, ...]:
        """Removes a host and all its processes. Returns the jobs that had processes on it."""
        self.is_down[host] = True
        lost = tuple(sorted(self.jobs[host]))
        self.jobs[host] = {}
        self._set(host, 0, 0)
        self._add_host(host, -1)
        return lost

    def repair(self, host: int) -> None:
        """Brings a host back, without processes."""
        self.is_down[host] = False
        self._set(host, self.hosts[host].cores, self.hosts[host].memory_bytes)
        self._add_host(host, 1)

    def _add_host(self, host: int, sign: int) -> None:
        self._totals[0] += sign * self.hosts[host].cores
        self._totals[1] += sign * self.hosts[host].memory_bytes

    def _room(self, host: int, need: ProcessDemand, *, is_server: bool) -> int:
        """The number of processes of a role that fit on a host."""
        cores = need.configuration.server_cores if is_server else need.configuration.worker_cores
        memory = need.server_bytes if is_server else need.worker_bytes
        return min(self.free_cores[host] // cores, self.free_memory[host] // max(1, memory))

    def _fit(self, need: ProcessDemand, workers: int, servers: int, kept: Placement) -> Placement | None:
        """Adds `workers` and `servers` processes to the kept ones by first fit; the role that needs the larger share of
        a host is placed first. None: they do not fit."""
        c, host = need.configuration, self._largest
        worker_size = max(c.worker_cores / host.cores, need.worker_bytes / host.memory_bytes)
        server_size = max(c.server_cores / host.cores, need.server_bytes / host.memory_bytes)
        found = dict(kept)
        free_cores, free_memory = self.free_core_array, self._memory
        if kept:
            free_cores, free_memory = free_cores.copy(), free_memory.copy()
            for index, (has_workers, has_servers) in kept.items():
                free_cores[index] -= _cores(need, has_workers, has_servers)
                free_memory[index] -= has_workers * need.worker_bytes + has_servers * need.server_bytes
        first, second = (True, False) if server_size >= worker_size else (False, True)
        for is_server in (first, second):
            left = servers if is_server else workers
            if left == 0:
                continue
            cores, memory = (c.server_cores, need.server_bytes) if is_server else (c.worker_cores, need.worker_bytes)
            counts = _first_fit(np.minimum(free_cores // cores, free_memory // max(1, memory)), left)
            if counts is None:
                return None
            if is_server == first and (workers if is_server else servers):
                free_cores, free_memory = free_cores.copy(), free_memory.copy()
                for index, count in counts:
                    free_cores[index] -= count * cores
                    free_memory[index] -= count * memory
            for index, count in counts:
                has = found.get(index, (0, 0))
                found[index] = (has[0], has[1] + count) if is_server else (has[0] + count, has[1])
        return found

    def _take(self, job: int, need: ProcessDemand, placement: Placement) -> None:
        for host, (workers, servers) in placement.items():
            cores = _cores(need, workers, servers)
            memory = workers * need.worker_bytes + servers * need.server_bytes
            self._set(host, self.free_cores[host] - cores, self.free_memory[host] - memory)
            self.jobs[host][job] = cores


def _first_fit(room: npt.NDArray[np.int64], wanted: int) -> list[tuple[int, int]] | None:
    """The first hosts that have room for `wanted` processes together, with the number on each. None: too little room.
    room: number of processes that fit on each host, int64 [n]; negative counts as 0."""
    fitting = np.flatnonzero(room > 0)
    counts = room[fitting]
    sums = np.cumsum(counts)
    if not sums.size or sums[-1] < wanted:
        return None
    last = int(np.searchsorted(sums, wanted))
    found = list(zip(fitting[: last + 1].tolist(), counts[: last + 1].tolist(), strict=True))
    found[-1] = (found[-1][0], found[-1][1] - (int(sums[last]) - wanted))
    return found


def _cores(need: ProcessDemand, workers: int, servers: int) -> int:
    return workers * need.configuration.worker_cores + servers * need.configuration.server_cores
