"""What a report tells: values read from a run directory, ready to be drawn, written or printed as JSON. Pure.

Times `at_s` are seconds of running time: the sessions of a run (it may have been resumed) laid end to end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.runs.events import Category
from elastichost.tuner.facts import Configuration, Workload
from elastichost.tuner.policy.policy import SpeedForecast

__all__ = [
    "Course",
    "Evaluation",
    "EventNote",
    "FaultRecord",
    "Gap",
    "Heat",
    "HotBucket",
    "Machine",
    "MeasuredConfiguration",
    "Memory",
    "MemoryStep",
    "Overview",
    "PlanChange",
    "ProcessCourse",
    "Report",
    "Story",
    "SupervisorSession",
    "TimedActivity",
    "TunerDecision",
    "TunerModelFacts",
    "Values",
]

Values = tuple[float | None, ...]  # None: nothing was measured, or the line is broken here


class Gap(msgspec.Struct, frozen=True):
    """Something the report lacks: which file, and why."""

    source: str
    text: str


class Machine(msgspec.Struct, frozen=True):
    """As far as it was recorded. cores: of the job; packages: name -> version."""

    platform: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    cores: int | None = None
    gpus: int | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The run as a whole; None and "": not known. samples_per_s: while it trained; tuner: what it
    was allowed: act, watch, off."""

    job: str
    run_dir: str
    state: str
    is_running: bool
    message: str = ""
    began_utc: str = ""
    ended_utc: str = ""
    running_s: float = 0.0
    mode: str = ""
    batch_size: int | None = None
    epochs: int | None = None
    samples_planned: int | None = None
    samples_trained: int | None = None
    samples_skipped: int = 0
    samples_quarantined: int = 0
    lookups: int = 0
    lookups_without_row: int = 0
    samples_per_s: float | None = None
    auc: float | None = None
    truth_auc: float | None = None
    logloss: float | None = None
    normalised_entropy: float | None = None
    calibration: float | None = None
    workers: int | None = None
    servers: int | None = None
    restarts: int | None = None
    torn_batches: int | None = None
    arena_bytes: int | None = None
    checkpoint: str = ""
    tuner: str = ""
    machine: Machine = Machine()


class SupervisorSession(msgspec.Struct, frozen=True):
    """One supervisor's part of the run. began_s: of its machine's monotonic clock; None: nothing tells it."""

    began_utc: str
    began_s: float | None
    at_s: float
    duration_s: float


class Course(msgspec.Struct, frozen=True):
    """The run second by second, thinned to a few hundred points. counted_per_s: from the samples counted;
    reported_per_s: what the workers tell, over their last seconds; process_bytes: PSS of all processes."""

    at_s: Values = ()
    samples: Values = ()
    counted_per_s: Values = ()
    reported_per_s: Values = ()
    loss: Values = ()
    arena_bytes: Values = ()
    process_at_s: Values = ()
    process_bytes: Values = ()


class ProcessCourse(msgspec.Struct, frozen=True):
    """One process of every incarnation. cpu_percent: of one core, None where it was not measured; waiting: share of
    time."""

    process: str
    incarnations: int
    at_s: Values
    cpu_percent: Values
    memory_bytes: Values
    mean_cpu_percent: float | None
    peak_memory_bytes: int
    mean_waiting: float


class TimedActivity(msgspec.Struct, frozen=True):
    """A checkpoint or an evaluation, from its decision to its end."""

    kind: Literal["checkpoint", "evaluation"]
    at_s: float
    until_s: float
    text: str


class PlanChange(msgspec.Struct, frozen=True):
    """number: from 1, as in the figures. outcome: what the change came to, in words."""

    number: int
    at_s: float
    workers: int
    servers: int
    access: str
    reason: str
    outcome: str = ""


class Evaluation(msgspec.Struct, frozen=True):
    at_s: float
    samples: int
    auc: float | None
    logloss: float | None


class EventNote(msgspec.Struct, frozen=True):
    """An event of the journal. process: the name of the process or job that it is about, ""."""

    at_s: float
    time_utc: str
    kind: str
    category: Category
    process: str
    text: str


class FaultRecord(msgspec.Struct, frozen=True):
    """back_after_s: until a successor of the process was ready; None: there was none, or none was needed."""

    note: EventNote
    back_after_s: float | None = None


class Story(msgspec.Struct, frozen=True):
    """What the journal tells. left_out: decisions and faults too many to be listed."""

    plans: tuple[PlanChange, ...] = ()
    threads: tuple[tuple[float, int], ...] = ()  # (at_s, threads of a worker from then on)
    spans: tuple[TimedActivity, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    decisions: tuple[EventNote, ...] = ()
    decisions_left_out: int = 0
    faults: tuple[FaultRecord, ...] = ()
    faults_left_out: int = 0
    fault_counts: dict[str, int] = {}


class TunerDecision(msgspec.Struct, frozen=True):
    """present: what ran, as measured then; measured: what was decided, as measured afterwards; gain: of the latter over
    the former. was_followed: whether the plan was changed so; None: there was nothing to change."""

    at_s: float
    kind: str
    configuration: Configuration
    reason: str
    present: SpeedForecast | None = None
    expected: SpeedForecast | None = None
    measured: SpeedForecast | None = None
    gain: float | None = None
    gain_s: float = 0.0
    cost_s: float = 0.0
    confidence: float = 0.0
    was_followed: bool | None = None


class MeasuredConfiguration(msgspec.Struct, frozen=True):
    """One configuration: measured; foretold before that (None: it was not); and as the model, fitted to all that the
    tuner goes by, predicts it. is_forgotten: measured before the speed of everything changed; the tuner
    does not go by that any more."""

    measured: SpeedForecast
    seconds: float
    before: SpeedForecast | None = None
    fitted: SpeedForecast | None = None
    is_forgotten: bool = False

    @property
    def configuration(self) -> Configuration:
        return self.measured.configuration


class TunerModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The tuner's model at the end of the run. problem: why nothing was fitted, in words. spread: standard deviation of
    each parameter's log. candidates: by predicted speed, fastest first, thinned; candidate_ranks: their places among
    all `candidates_total`, from 1."""

    name: str
    workload: Workload
    measured: tuple[MeasuredConfiguration, ...]
    problem: str = ""
    observations: int = 0
    configurations: int = 0
    rank: int = 0
    parameters_total: int = 0
    parameters: dict[str, float] = {}
    spread: dict[str, float] = {}
    confidence: float | None = None
    candidates: tuple[SpeedForecast, ...] = ()
    candidate_ranks: tuple[int, ...] = ()
    candidates_total: int = 0
    has_prior: bool = False


class MemoryStep(msgspec.Struct, frozen=True):
    """What was told or done about memory. kind: of the decision ("evict", "admit", "move", "shrink", "warn"), or
    "budget", "full", "free", "note". exceeds_in_s: when the budget was expected to be exceeded, chance: within the time
    that counts. effect: what it did, in words."""

    at_s: float
    kind: str
    text: str
    exceeds_in_s: float | None = None
    chance: float | None = None
    effect: str = ""


class Memory(msgspec.Struct, frozen=True):
    """setting: resources.memory of the job; budget_bytes: of all hosts, None when the run does not tell how much that
    was; peak_used_bytes: most of it that was seen taken or kept back."""

    setting: str = ""
    budget_bytes: int | None = None
    peak_arena_bytes: int | None = None
    peak_process_bytes: int | None = None
    peak_used_bytes: int | None = None
    steps: tuple[MemoryStep, ...] = ()


class HotBucket(msgspec.Struct, frozen=True):
    """share: of all keys that were asked for; server: its owner at the end."""

    table: int
    bucket: int
    share: float
    server: int | None


class Heat(msgspec.Struct, frozen=True):
    """shares[k][i]: of the keys asked for before at_s[i], those of servers[k]. busiest: share of its time that the
    busiest PS serves. moves: (at_s, buckets that changed hands)."""

    at_s: tuple[float, ...]
    servers: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]
    busiest: tuple[float, ...]
    moves: tuple[tuple[float, int], ...]
    hottest: tuple[HotBucket, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    made_utc: str
    overview: Overview
    gaps: tuple[Gap, ...]
    sessions: tuple[SupervisorSession, ...]
    course: Course
    processes: tuple[ProcessCourse, ...]
    story: Story
    tuner: tuple[TunerDecision, ...]
    model: TunerModelFacts | None
    memory: Memory
    heat: Heat | None
