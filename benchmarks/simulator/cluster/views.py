"""The protocol between the simulator and policies: the view of a cluster and its jobs, and the grants. Pure.

A view contains only data that a real system has: features, requests, noisy measurements. A policy may store earlier
views. Policies that use the truth (`oracle`, `tuned`) get it when they are created, and not from the views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from elastichost.history.features import JobFeatures
from elastichost.plan import ProcessId
from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.health import WorkerSpeed
from elastichost.tuner.placement.heat import BucketKey

__all__ = [
    "ClusterView",
    "EndedJob",
    "Grant",
    "GrantLimits",
    "HostTotals",
    "HostView",
    "InformedPolicy",
    "JobEnd",
    "JobFacts",
    "JobFaults",
    "JobSequence",
    "JobView",
    "MeasurementHistory",
    "MemorySample",
    "ObservingPolicy",
    "Policy",
    "ServerLoads",
    "Trigger",
]

JobEnd = Literal["completed", "died"]
Trigger = Literal["tick", "arrival", "end", "loss"]  # loss: a job was killed because of its memory, or lost a host


class MemorySample(msgspec.Struct, frozen=True, gc=False):
    """The memory of all processes of a job together, at one time."""

    at_s: float
    samples: float  # trained until that time
    used_bytes: float


class JobFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about a job at its arrival. requested_memory_bytes: of all processes together. share_cores: number of
    cores that the user of the job may occupy at the same time; it limits users that size their jobs by hand.
    worker_bytes: private memory of each worker. server_bytes: private memory of each PS, without its tables."""

    job: int
    features: JobFeatures
    workload: Workload
    request: Configuration
    requested_memory_bytes: int
    share_cores: int
    worker_bytes: int
    server_bytes: int
    arrived_s: float


class MeasurementHistory(Protocol):
    """The measurements of a job by block, oldest first. slowest: measured speed of the slowest worker / usual speed of
    the slowest of the same number of healthy workers; speeds of noisy jobs are averaged over several blocks. It is 1.0
    with fewer than two workers."""

    @property
    def observations(self) -> Sequence[Observation]: ...

    @property
    def memory(self) -> Sequence[MemorySample]: ...

    @property
    def slowest(self) -> Sequence[float]: ...

    @property
    def loads(self) -> Sequence[ServerLoads]: ...


class ServerLoads(msgspec.Struct, frozen=True, gc=False):
    """The measured load of the PS of a job in one block, as a live run counts it. heat: requests by bucket, as shares
    of all requests that can move to another PS. owners: PS of each bucket. busiest: share of its time in which the
    busiest PS serves requests."""

    heat: Mapping[BucketKey, float]
    owners: Mapping[BucketKey, int]
    busiest: float


class JobView(msgspec.Struct, frozen=True, gc=False):
    """One job that waits or runs, at the time `seen_s` of its last change or measurement.

    running: None while it waits. is_changing: a grant is being carried out; other grants are refused until it is done.
    granted_memory_bytes: of all processes together. ooms: number of kills because of its memory. restarts: number of
    returns to a checkpoint, for any reason."""

    facts: JobFacts
    measured: MeasurementHistory
    running: Configuration | None
    granted_memory_bytes: int
    started_s: float | None
    seen_s: float
    samples_left: float
    is_changing: bool
    ooms: int
    restarts: int

    @property
    def job(self) -> int:
        return self.facts.job

    @property
    def features(self) -> JobFeatures:
        return self.facts.features

    @property
    def workload(self) -> Workload:
        return self.facts.workload

    @property
    def request(self) -> Configuration:
        return self.facts.request

    @property
    def requested_memory_bytes(self) -> int:
        return self.facts.requested_memory_bytes

    @property
    def arrived_s(self) -> float:
        return self.facts.arrived_s

    @property
    def observations(self) -> Sequence[Observation]:
        return self.measured.observations

    @property
    def memory(self) -> Sequence[MemorySample]:
        return self.measured.memory

    @property
    def slowest(self) -> Sequence[float]:
        return self.measured.slowest

    @property
    def loads(self) -> Sequence[ServerLoads]:
        return self.measured.loads

    def worker_speeds(self, block: int) -> tuple[WorkerSpeed, ...]:
        """The speeds of the slowest worker and of two others in a block, which are the usual speed; () with fewer than
        two workers."""
        if self.observations[block].configuration.workers < 2:
            return ()
        speeds = (self.slowest[block], 1.0, 1.0)
        return tuple(
            WorkerSpeed(ProcessId("worker", index, 1), speed, speed, has_work=True)
            for index, speed in enumerate(speeds)
        )

    def process_bytes(self, configuration: Configuration) -> int:
        """The private memory of all processes of a configuration."""
        facts = self.facts
        return configuration.workers * facts.worker_bytes + configuration.servers * facts.server_bytes

    @property
    def row_bytes(self) -> float:
        """Mean bytes of a row with its optimizer state and its place in the index."""
        return 4.0 * max(self.features.mean_dim, 1.0) + 16.0

    @property
    def fixed_bytes(self) -> float:
        """Bytes of the rows and the optimizer state of the fixed tables."""
        return float(self.features.rows * (4 * self.features.mean_dim + 4))


class EndedJob(msgspec.Struct, frozen=True, gc=False):
    """A job that has ended, with its last view. first: the configuration that it started with."""

    view: JobView
    outcome: JobEnd
    ended_s: float
    first: Configuration | None


class HostView(msgspec.Struct, frozen=True, gc=False):
    """One host. core_speed: of one of its cores, relative to a usual one; users know it from the type of the host."""

    cores: int  # 0 while the host is down
    memory_bytes: int
    free_cores: int
    free_memory_bytes: int
    core_speed: float = 1.0


class HostTotals(msgspec.Struct, frozen=True, gc=False):
    """The cores and the memory of all hosts together; hosts that are down have none."""

    cores: int
    memory_bytes: int
    free_cores: int
    free_memory_bytes: int

    @classmethod
    def of(cls, hosts: Sequence[HostView]) -> HostTotals:
        return cls(
            sum(host.cores for host in hosts),
            sum(host.memory_bytes for host in hosts),
            sum(host.free_cores for host in hosts),
            sum(host.free_memory_bytes for host in hosts),
        )


class GrantLimits(msgspec.Struct, frozen=True):
    """The least and the largest configuration of one job."""

    least: Configuration
    most: Configuration


class JobSequence(Sequence[JobView]):
    """Views of jobs in order of arrival, which knows the waiting ones without making the views of the others."""

    @property
    def waiting(self) -> Sequence[JobView]:
        """The jobs that run nowhere."""
        raise NotImplementedError


class ClusterView(msgspec.Struct, frozen=True):
    """The view of the cluster for one decision. jobs: in order of arrival. ended: since the last decision. known:
    totals of `hosts`; None: they are added up."""

    now_s: float
    trigger: Trigger
    jobs: Sequence[JobView]
    ended: tuple[EndedJob, ...]
    hosts: tuple[HostView, ...]
    limits: GrantLimits
    known: HostTotals | None = None

    @property
    def waiting(self) -> Sequence[JobView]:
        """The jobs that run nowhere, in order of arrival."""
        if isinstance(self.jobs, JobSequence):
            return self.jobs.waiting
        return [job for job in self.jobs if job.running is None]

    @property
    def totals(self) -> HostTotals:
        return HostTotals.of(self.hosts) if self.known is None else self.known

    @property
    def cores(self) -> int:
        return self.totals.cores

    @property
    def memory_bytes(self) -> int:
        return self.totals.memory_bytes

    @property
    def free_cores(self) -> int:
        return self.totals.free_cores

    @property
    def free_memory_bytes(self) -> int:
        return self.totals.free_memory_bytes


class Grant(msgspec.Struct, frozen=True):
    """The resources that a policy gives to a job. memory_bytes: of all its processes together; a job that uses more is
    killed. replace_straggler: the slowest worker is replaced. move_buckets: the work on rows is balanced among the PS
    again. drops_rows: from now on rows that were unseen for long are dropped, so that the job stays within its
    memory."""

    configuration: Configuration
    memory_bytes: int
    replace_straggler: bool = False
    move_buckets: bool = False
    drops_rows: bool = False


class Policy(Protocol):
    """Decides for all jobs at once. One policy object decides for a whole simulation, and for only one."""

    @property
    def name(self) -> str: ...

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        """Returns job -> grant; None or no entry: the job stays unchanged. Grants that shrink a job are carried out
        first, the others in their order. A job gets as many of its new workers as fit on the hosts. A grant that does
        not fit even without new workers is refused; if it contains more memory, the job still gets that memory in its
        present configuration, if it fits."""
        ...


@runtime_checkable
class ObservingPolicy(Protocol):
    """A policy whose jobs have their own tuners: what they do between decisions is no part of a decision, because every
    run does it in its own process."""

    def observe(self, view: ClusterView, now_s: float) -> None:
        """Gives the new measurements of a view to the tuners of its jobs; `decide` does it if it was not called."""
        ...


class JobFaults(msgspec.Struct, frozen=True, gc=False):
    """The true faults of a job now. stragglers: number of slow workers. hot: share of the work on rows that one PS has
    beyond its usual share."""

    stragglers: int
    hot: float


@runtime_checkable
class InformedPolicy(Protocol):
    """A policy that gets the true faults before it decides. It is a bound for other policies, not a competitor."""

    def hear(self, ailing: Mapping[int, JobFaults]) -> None:
        """Receives the faults of all jobs that have any."""
        ...
