"""The values of a report of a run, which is rendered as a page or printed as JSON. Pure.

Times `at_s` are seconds of running time: the sessions of a run (it may have been resumed) are laid end to end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.runs.events import Category
from elastichost.tuner.facts import Configuration, Workload
from elastichost.tuner.policy.policy import SpeedForecast

__all__ = [
    "Course",
    "Curve",
    "Evaluation",
    "EventNote",
    "FaultRecord",
    "Gap",
    "GpuCourse",
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
    "TableFacts",
    "TimedActivity",
    "Trained",
    "TunerDecision",
    "TunerModelFacts",
    "Values",
]

Values = tuple[float | None, ...]  # None: nothing was measured, or the line has a break here


class Gap(msgspec.Struct, frozen=True):
    """A part that is missing in the report: the file, and the reason."""

    source: str
    text: str


class Machine(msgspec.Struct, frozen=True):
    """The machine, as far as it was recorded. cores: cores of the job. packages: name -> version."""

    platform: str = ""
    python: str = ""
    packages: dict[str, str] = {}
    cores: int | None = None
    gpus: int | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The run as a whole; None and "" mean not known. samples_per_s: mean while it trained. tuner: tuner.mode ("act",
    "propose", "watch" or "off")."""

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
    metrics: dict[str, float | None] = {}
    workers: int | None = None
    servers: int | None = None
    restarts: int | None = None
    torn_batches: int | None = None
    arena_bytes: int | None = None
    checkpoint: str = ""
    tuner: str = ""
    machine: Machine = Machine()


class SupervisorSession(msgspec.Struct, frozen=True):
    """The part of the run under one supervisor. began_s: on the machine's monotonic clock, None if not known."""

    began_utc: str
    began_s: float | None
    at_s: float
    duration_s: float


class Course(msgspec.Struct, frozen=True):
    """The run over time, thinned to a few hundred points. counted_per_s: samples/s from the counted samples.
    reported_per_s: samples/s that the workers report, over their last seconds. process_bytes: PSS of all processes."""

    at_s: Values = ()
    samples: Values = ()
    counted_per_s: Values = ()
    reported_per_s: Values = ()
    loss: Values = ()
    arena_bytes: Values = ()
    process_at_s: Values = ()
    process_bytes: Values = ()


class Curve(msgspec.Struct, frozen=True):
    """The loss over the samples trained. at_s: running time of each point. is_exact: from all committed batches, each
    point the mean of `every_samples` samples. Otherwise from the workers' reports, of a run that has no exact curve."""

    samples: Values = ()
    loss: Values = ()
    at_s: Values = ()
    every_samples: float = 0.0
    is_exact: bool = False


class TableFacts(msgspec.Struct, frozen=True):
    """An entry of [tables] in the job. features: columns whose ids it holds. columns: number of tables that are made
    from this entry; that of "default" is made once for each column that no other entry names. rows: a number, or
    "dynamic"."""

    name: str
    features: tuple[str, ...]
    columns: int
    dim: str
    rows: str
    optimizer: str


class Trained(msgspec.Struct, frozen=True):
    """What was trained, as the job says it. settings: (name, value) of the most important ones."""

    model: str = ""
    args: str = ""
    tables: tuple[TableFacts, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


class ProcessCourse(msgspec.Struct, frozen=True):
    """One process over all its incarnations. cpu_percent: of one core, None where it was not measured. mean_waiting:
    share of time."""

    process: str
    incarnations: int
    at_s: Values
    cpu_percent: Values
    memory_bytes: Values
    mean_cpu_percent: float | None
    peak_memory_bytes: int
    mean_waiting: float


class GpuCourse(msgspec.Struct, frozen=True):
    """One GPU. busy: share of the time in which it computed, for all processes; own: the part of this run."""

    index: int
    at_s: Values
    busy: Values
    own_busy: Values
    used_bytes: Values
    own_bytes: Values
    received_bytes_per_s: Values
    sent_bytes_per_s: Values


class TimedActivity(msgspec.Struct, frozen=True):
    """A checkpoint or an evaluation, from its start to its end."""

    kind: Literal["checkpoint", "evaluation"]
    at_s: float
    until_s: float
    text: str


class PlanChange(msgspec.Struct, frozen=True):
    """A change of the plan. number: from 1, as in the figures. outcome: the sentence about its result."""

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
    metrics: dict[str, float | None] = {}


class EventNote(msgspec.Struct, frozen=True):
    """An event of the journal. process: the name of its process or job, "" if it has none. text: its sentence."""

    at_s: float
    time_utc: str
    kind: str
    category: Category
    process: str
    text: str


class FaultRecord(msgspec.Struct, frozen=True):
    """A fault or warning. back_after_s: seconds until the next incarnation of the lost process was ready; None if there
    was none, or if no process was lost."""

    note: EventNote
    back_after_s: float | None = None


class Story(msgspec.Struct, frozen=True):
    """The history of the run from its journal. *_left_out: the number of decisions and faults that the lists leave out
    because they are too long."""

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
    """A decision of the tuner. present: the speed measured before it. measured: the speed of the decided configuration,
    measured after it. gain: relative gain of `measured` over `present`. was_followed: whether the plan was changed to
    the decided configuration; None if there was nothing to change."""

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
    """One measured configuration. before: the forecast before it was measured, None without one. fitted: the prediction
    of the model that is fitted to all measurements the tuner still uses. is_forgotten: the tuner discarded this
    measurement, because the speed of the machine or the job changed later."""

    measured: SpeedForecast
    seconds: float
    before: SpeedForecast | None = None
    fitted: SpeedForecast | None = None
    is_forgotten: bool = False

    @property
    def configuration(self) -> Configuration:
        return self.measured.configuration


class TunerModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The tuner's model at the end of the run. problem: why the fit failed, "" if it did not. spread: standard
    deviation of each parameter's log. candidates: thinned, fastest predicted speed first. candidate_ranks: their ranks
    among all `candidates_total`, from 1."""

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
    """A memory event. kind: of a decision ("evict", "admit", "move", "shrink", "warn"), or "budget", "full", "free",
    "note". exceeds_in_s: expected seconds until the budget is exceeded. chance: probability that it is exceeded within
    the time that an action needs. effect: the sentence about the measured effect."""

    at_s: float
    kind: str
    text: str
    exceeds_in_s: float | None = None
    chance: float | None = None
    effect: str = ""


class Memory(msgspec.Struct, frozen=True):
    """Memory of the run. setting: resources.memory of the job. budget_bytes: of all hosts, None if it was not recorded.
    peak_used_bytes: the largest part of the budget that was seen in use or reserved."""

    setting: str = ""
    budget_bytes: int | None = None
    peak_arena_bytes: int | None = None
    peak_process_bytes: int | None = None
    peak_used_bytes: int | None = None
    steps: tuple[MemoryStep, ...] = ()


class HotBucket(msgspec.Struct, frozen=True):
    """A bucket with much load. share: of all requested keys. server: its owner at the end, None if not known."""

    table: int
    bucket: int
    share: float
    server: int | None


class Heat(msgspec.Struct, frozen=True):
    """The load of the PS over time. shares[k][i]: share of the load before at_s[i] that servers[k] had. busiest: share
    of its time that the busiest PS spends serving. moves: (at_s, number of buckets handed over)."""

    at_s: tuple[float, ...]
    servers: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]
    busiest: tuple[float, ...]
    moves: tuple[tuple[float, int], ...]
    hottest: tuple[HotBucket, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. settings: every setting of the job, by its dotted name, as JSON."""

    made_utc: str
    overview: Overview
    trained: Trained
    settings: dict[str, str]
    curve: Curve
    gaps: tuple[Gap, ...]
    sessions: tuple[SupervisorSession, ...]
    course: Course
    processes: tuple[ProcessCourse, ...]
    gpus: tuple[GpuCourse, ...]
    story: Story
    tuner: tuple[TunerDecision, ...]
    model: TunerModelFacts | None
    memory: Memory
    heat: Heat | None
