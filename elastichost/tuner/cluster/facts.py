"""The view of the jobs that share cores, and what they are granted. Pure values."""

from __future__ import annotations

import msgspec

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import JobId, Option, OptionArray

__all__ = ["ClusterView", "Grant", "JobView"]


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits or runs.

    options: its frontier, with the running configuration. current: index of the running option; None: the job waits.
    weight: a job with weight 2 counts like two jobs with weight 1. busy_cores: cores that the running job keeps busy,
    CPU-seconds per second; None: not known. has_own_cores: no other job gets its cores; False: it floats.

    is_changing: a grant is being carried out, so there is no other one now. is_measured: the running configuration was
    measured. proposal: what the job's own tuner would run next (`proposals`); None: it keeps the present one."""

    job: JobId
    samples_left: float
    options: tuple[Option, ...] | OptionArray
    current: int | None = None
    weight: float = 1.0
    busy_cores: float | None = None
    has_own_cores: bool = True
    is_changing: bool = False
    is_measured: bool = True
    proposal: Option | None = None


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs, and the cores and the memory that they share. memory_bytes: 0: no limit.

    is_one_host: a job without cores of its own runs on all cores; False: it waits. has_news: a job came or ended since
    the last decision."""

    jobs: tuple[JobView, ...]
    cores: int
    memory_bytes: int = 0
    is_one_host: bool = False
    has_news: bool = True


class Grant(msgspec.Struct, frozen=True):
    """What one job gets. option: index of its option. configuration: of that option, or the job's own proposal;
    is_proposal: the latter. cores: number of its cores. is_own: no other job gets these cores; False: it floats."""

    job: JobId
    option: int
    configuration: Configuration
    cores: int
    is_own: bool
    reason: str
    is_proposal: bool = False
