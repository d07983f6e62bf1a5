"""What several policies need: admission in order of arrival, merged observations, memory as users ask for it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elastichost.simulator.views import ClusterView, EndedJob, Grant, JobView, Limits
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation
from elastichost.tuner.placement.allocation import Capacity, JobId, JobOptions, Option
from elastichost.tuner.policy.candidates import Bounds, enumerate_candidates
from elastichost.tuner.policy.frontier import pareto
from elastichost.tuner.policy.profile import merged

__all__ = [
    "Choices",
    "Digests",
    "Refused",
    "Room",
    "admit",
    "candidates",
    "clamped",
    "cores_of",
    "least_servers",
    "make_way",
    "requested_memory",
    "thinned_frontier",
]


AGAIN_S = REFUSED_S = 300.0


class Room:
    """Cores and memory that nobody has yet, of the whole cluster. Whether they are on one host the simulator knows."""

    def __init__(self, view: ClusterView) -> None:
        self.cores, self.memory_bytes = view.free_cores, view.free_memory_bytes

    def take(self, cores: int, memory_bytes: int) -> bool:
        """False, and nothing is taken, when there is not so much."""
        if cores > self.cores or memory_bytes > self.memory_bytes:
            return False
        self.cores, self.memory_bytes = self.cores - cores, self.memory_bytes - memory_bytes
        return True


def admit(view: ClusterView, room: Room, first: Callable[[JobView], Grant]) -> dict[int, Grant]:
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


def clamped(limits: Limits, workers: float, servers: float, worker_cores: float, server_cores: float) -> Configuration:
    """The nearest that is allowed."""
    low, high = limits.least, limits.most
    return Configuration(
        workers=int(min(max(workers, low.workers), high.workers)),
        servers=int(min(max(servers, low.servers), high.servers)),
        worker_cores=int(min(max(worker_cores, low.worker_cores), high.worker_cores)),
        server_cores=int(min(max(server_cores, low.server_cores), high.server_cores)),
    )


def cores_of(array: ConfigurationArray) -> npt.NDArray[np.float64]:
    """float64 [n] for float64 [n, 4]."""
    total: npt.NDArray[np.float64] = array[:, 0] * array[:, 2] + array[:, 1] * array[:, 3]
    return total


def candidates(limits: Limits, cores: Sequence[int] = (1, 2, 4, 8)) -> ConfigurationArray:
    """All within the limits whose processes have so many cores; float64 [n, 4], lexicographic."""
    array = enumerate_candidates(Bounds(limits.least, limits.most, share_cores=False))
    kept: ConfigurationArray = array[np.isin(array[:, 2], cores) & np.isin(array[:, 3], cores)]
    return kept


def thinned_frontier(gain: npt.NDArray[np.float64], cost: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.int64]:
    """Indices of at most so many points of the frontier, by rising cost: its two ends, and between them those next to
    even steps of the logarithm of the gain."""
    front = pareto(gain, cost)
    if len(front) <= most:
        return front
    logs = np.log(np.maximum(gain[front], 1e-12))
    places = np.searchsorted(logs, np.linspace(logs[0], logs[-1], most))
    kept: npt.NDArray[np.int64] = front[np.unique(np.minimum(places, len(front) - 1))]
    return kept


class Choices:
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


class Refused:
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


class Digests:
    """Observations of every job, one for each of its configurations, kept up to date block by block."""

    @staticmethod
    def age(job: JobView, known: Mapping[Configuration, Observation]) -> tuple[int, int]:
        """A model is fitted anew when this has changed: with a new configuration, and whenever the blocks have doubled;
        one more block of a configuration that has many changes no model."""
        return len(known), len(job.observations).bit_length()

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._merged: dict[int, dict[Configuration, Observation]] = {}

    def update(self, job: JobView) -> dict[Configuration, Observation]:
        """In the order in which the configurations were seen first."""
        known = self._merged.setdefault(job.job, {})
        for observation in job.observations[self._seen.get(job.job, 0) :]:
            before = known.get(observation.configuration)
            known[observation.configuration] = observation if before is None else merged(before, observation)
        self._seen[job.job] = len(job.observations)
        return known

    def forget(self, ended: Iterable[EndedJob]) -> None:
        for one in ended:
            self._seen.pop(one.view.job, None)
            self._merged.pop(one.view.job, None)
