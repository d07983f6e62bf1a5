"""What a policy sees of a cluster and its jobs, and what it answers: the protocol of simulator and policies. Pure.

A policy sees what a real system could see: features, requests, measurements with their noise. It may remember what it
saw. Policies that are told the truth (`oracle`, `tuned`) get it when they are made, not from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, Observation, Workload

__all__ = [
    "ClusterView",
    "EndedJob",
    "Grant",
    "GrantLimits",
    "HostView",
    "InformedPolicy",
    "JobEnd",
    "JobFacts",
    "JobFaults",
    "JobView",
    "MeasurementHistory",
    "MemorySample",
    "Policy",
    "Trigger",
]

JobEnd = Literal["completed", "died"]
Trigger = Literal["tick", "arrival", "end", "loss"]  # loss: a job was killed for its memory, or lost a host


class MemorySample(msgspec.Struct, frozen=True, gc=False):
    """Memory of all processes of a job together."""

    at_s: float
    samples: float  # trained until then
    used_bytes: float


class JobFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of a job when it arrives. requested_memory_bytes: of all processes together. share_cores: what its
    user may have at once, where users tune by hand. worker_bytes: private memory of each worker; server_bytes: of each
    PS, without its tables."""

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
    """By block, oldest first. slowest: measured speed of the slowest worker over that which the slowest of so many
    healthy ones usually has; speeds of noisy jobs are averaged over several blocks. 1.0 with fewer than two workers."""

    @property
    def observations(self) -> Sequence[Observation]: ...

    @property
    def memory(self) -> Sequence[MemorySample]: ...

    @property
    def slowest(self) -> Sequence[float]: ...


class JobView(msgspec.Struct, frozen=True, gc=False):
    """One job that waits or runs, as of `seen_s`, the last time anything about it changed or was measured.

    running: None while it waits. is_changing: a grant is being carried out; others are refused until it is done.
    granted_memory_bytes: of all processes together. ooms: how often it was killed for its memory; restarts: how often
    it went back to a checkpoint, for whatever reason."""

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


class EndedJob(msgspec.Struct, frozen=True, gc=False):
    """A job that is over, as it was seen last. first: the configuration it started with."""

    view: JobView
    outcome: JobEnd
    ended_s: float
    first: Configuration | None


class HostView(msgspec.Struct, frozen=True, gc=False):
    cores: int  # 0 while it is down
    memory_bytes: int
    free_cores: int
    free_memory_bytes: int


class GrantLimits(msgspec.Struct, frozen=True):
    """What one job may have."""

    least: Configuration
    most: Configuration


class ClusterView(msgspec.Struct, frozen=True):
    """Jobs in order of arrival. ended: since the last decision."""

    now_s: float
    trigger: Trigger
    jobs: tuple[JobView, ...]
    ended: tuple[EndedJob, ...]
    hosts: tuple[HostView, ...]
    limits: GrantLimits

    @property
    def cores(self) -> int:
        return sum(host.cores for host in self.hosts)

    @property
    def memory_bytes(self) -> int:
        return sum(host.memory_bytes for host in self.hosts)

    @property
    def free_cores(self) -> int:
        return sum(host.free_cores for host in self.hosts)

    @property
    def free_memory_bytes(self) -> int:
        return sum(host.free_memory_bytes for host in self.hosts)


class Grant(msgspec.Struct, frozen=True):
    """What a job shall have. memory_bytes: of all its processes together; a job that uses more is killed.

    replace_straggler: the slowest worker is replaced. move_buckets: the rows' work is shared out among the PS anew."""

    configuration: Configuration
    memory_bytes: int
    replace_straggler: bool = False
    move_buckets: bool = False


class Policy(Protocol):
    """Decides for all jobs at once. The same policy object decides for a whole simulation, and for one only."""

    @property
    def name(self) -> str: ...

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        """By job. None, or no entry: it stays as it is. Grants that shrink a job are carried out first, the others in
        their order. Of new workers a job gets as many as fit on the hosts; what does not fit even without any is
        refused, but for memory that a job gets more where it is."""
        ...


class JobFaults(msgspec.Struct, frozen=True, gc=False):
    """What is truly wrong with a job now. stragglers: of its workers; hot: share of the rows' work that one PS has
    beyond its usual part."""

    stragglers: int
    hot: float


@runtime_checkable
class InformedPolicy(Protocol):
    """A policy that is told the truth before it decides: a bound for those that are not, and no rival."""

    def hear(self, ailing: Mapping[int, JobFaults]) -> None:
        """Of the jobs with which something is wrong."""
        ...
