"""What a report of many jobs on one host tells: values, ready to be drawn, written or printed as JSON. Pure.

Times `at_s` are seconds since the dispatcher began; what an earlier one in the same directory did is left out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.reporting.run.facts import EventNote, Gap

__all__ = ["HostCourse", "HostReport", "HostSummary", "JobLine", "JobRow", "JobSpan", "SpanState", "Together"]

SpanState = Literal["waiting", "starting", "running", "paused", "stopping"]


class JobSpan(msgspec.Struct, frozen=True):
    """A job was in one state for so long."""

    state: SpanState
    at_s: float
    until_s: float

    @property
    def seconds(self) -> float:
        return self.until_s - self.at_s


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job. why: it is in this state, or was started as it was. charged_bytes: at most. alone_samples_per_s: what it
    would train alone, None: not known. slowdown: the time in which it trained over what its samples would take at that
    speed."""

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


class JobLine(msgspec.Struct, frozen=True):
    """One job over time, at the times of the course; 0 where it did not run."""

    job: str
    cores: tuple[float, ...]
    memory_bytes: tuple[float, ...]


class HostCourse(msgspec.Struct, frozen=True):
    """All jobs over time, thinned to a few hundred points: each tells of the time since the one before. lines: as jobs
    started; charged_bytes: of all together."""

    at_s: tuple[float, ...] = ()
    lines: tuple[JobLine, ...] = ()
    charged_bytes: tuple[float, ...] = ()


class Together(msgspec.Struct, frozen=True):
    """A job beside the same others for so long. predicted, measured: its speed as a share of that alone."""

    job: str
    kind: str
    others: tuple[str, ...]
    at_s: float
    seconds: float
    predicted: float
    measured: float


class HostSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The host as a whole. memory_bytes: that all jobs together may have; busy_cores: mean over the time in which any
    job ran; most_together: jobs at one time."""

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
    samples_trained: int = 0
    samples_per_s: float | None = None
    busy_cores: float | None = None
    peak_bytes: int = 0
    peak_charged_bytes: int = 0
    most_together: int = 0
    isolation: tuple[str, ...] = ()


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """jobs: as they started, then those that did not; decisions_left_out: too many to be listed."""

    made_utc: str
    summary: HostSummary
    gaps: tuple[Gap, ...]
    jobs: tuple[JobRow, ...]
    course: HostCourse
    together: tuple[Together, ...]
    decisions: tuple[EventNote, ...]
    decisions_left_out: int = 0
