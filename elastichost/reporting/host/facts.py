"""The values of a report of many jobs on one host, which is drawn as a page or printed as JSON. Pure.

Times `at_s` are seconds since the last dispatcher began. Earlier dispatchers of the same directory are left out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.reporting.run.facts import EventNote, Gap

__all__ = ["HostCourse", "HostReport", "HostSummary", "JobLine", "JobRow", "JobSpan", "SpanState", "Together"]

SpanState = Literal["waiting", "starting", "running", "paused", "stopping"]


class JobSpan(msgspec.Struct, frozen=True):
    """A time in which a job was in one state, in seconds."""

    state: SpanState
    at_s: float
    until_s: float

    @property
    def seconds(self) -> float:
        return self.until_s - self.at_s


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job. why: the reason for its state or its start. charged_bytes: the most that it was charged.
    alone_samples_per_s: its estimated speed alone, None if not known. slowdown: the time in which it trained, divided
    by the time that its samples take at that speed."""

    job: str
    state: str
    kind: str
    why: str
    run_dir: str
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    spans: tuple[JobSpan, ...]
    starts: int = 0
    out_of_memory: int = 0
    workers: int = 0
    servers: int = 0
    worker_cores: int = 0
    gpu: int | None = None
    samples_planned: int = 0
    samples_trained: int = 0
    alone_samples_per_s: float | None = None
    slowdown: float | None = None
    estimated_bytes: int = 0
    peak_bytes: int = 0
    charged_bytes: int = 0
    auc: float | None = None

    @property
    def waited_s(self) -> float:
        return sum(span.seconds for span in self.spans if span.state == "waiting")

    @property
    def ran_s(self) -> float:
        """The time in which the job had processes, including their start and end."""
        return sum(span.seconds for span in self.spans if span.state != "waiting")


class JobLine(msgspec.Struct, frozen=True):
    """Cores and memory of one job at the times of the course; 0 while it did not run."""

    job: str
    cores: tuple[float, ...]
    memory_bytes: tuple[float, ...]


class HostCourse(msgspec.Struct, frozen=True):
    """All jobs over time, thinned to a few hundred points; each point covers the time since the point before. lines: in
    the order in which the jobs started. charged_bytes: of all jobs together."""

    at_s: tuple[float, ...] = ()
    lines: tuple[JobLine, ...] = ()
    charged_bytes: tuple[float, ...] = ()


class Together(msgspec.Struct, frozen=True):
    """A time in which one job ran beside the same other jobs. predicted, measured: its speed as a share of its speed
    alone."""

    job: str
    kind: str
    others: tuple[str, ...]
    at_s: float
    seconds: float
    predicted: float
    measured: float


class HostSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The host as a whole. memory_bytes: limit of all jobs together. busy_cores: mean number of cores in use over the
    time in which a job ran. most_together: the largest number of jobs at one time. states: number of jobs by state.
    left_out: number of these that the report does not list: they ended earlier than those that the dispatcher keeps."""

    directory: str
    state: str
    is_running: bool
    policy: str
    elapsed_s: float
    began_utc: str = ""
    cores: int = 0
    gpus: int = 0
    memory_bytes: int = 0
    states: dict[str, int] = {}
    left_out: int = 0
    samples_trained: int = 0
    samples_per_s: float | None = None
    busy_cores: float | None = None
    peak_bytes: int = 0
    peak_charged_bytes: int = 0
    most_together: int = 0
    isolation: tuple[str, ...] = ()


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. jobs: started jobs in the order of their start, then the others. decisions_left_out: the number
    of decisions that the list leaves out because it is too long."""

    made_utc: str
    summary: HostSummary
    gaps: tuple[Gap, ...]
    jobs: tuple[JobRow, ...]
    course: HostCourse
    together: tuple[Together, ...]
    decisions: tuple[EventNote, ...]
    decisions_left_out: int = 0
