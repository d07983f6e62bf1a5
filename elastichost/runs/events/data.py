"""Events about samples: leases, batches, samples that are left out, evaluations, the input. Pure values."""

from __future__ import annotations

from typing import ClassVar, Literal

from elastichost.runs.events.base import Category, Durability, Event, ProcessEvent
from elastichost.runs.facts import EvaluationMemory, Quarantined
from elastichost.tuner.input.facts import InputDecision
from elastichost.wire.control_work import SourceTrouble

__all__ = [
    "BatchTorn",
    "EvaluationFinished",
    "EvaluationStarted",
    "InputTuned",
    "LeaseGranted",
    "LeasesFolded",
    "LeasesSettled",
    "MetricFailed",
    "MicroBatchesAssigned",
    "PositionsLeftOut",
    "QuarantineCause",
    "SamplesQuarantined",
    "SourceRecovered",
    "SourceTroubled",
]

QuarantineCause = Literal["deaths", "roll_back"]


class LeaseGranted(ProcessEvent, frozen=True):
    """The worker may train positions [start, stop) of a unit."""

    lease: int
    epoch: int
    unit: int
    start: int
    stop: int

    category: ClassVar[Category] = "lease"
    durability: ClassVar[Durability] = "soon"
    is_replayed: ClassVar[bool] = True


class LeasesFolded(Event, frozen=True):
    """One line that replaces many leases. leases: their number; lease: the highest lease number; epoch: epoch of the
    last lease; incarnations: name of a worker -> its highest incarnation."""

    leases: int
    lease: int
    epoch: int
    incarnations: dict[str, int]

    category: ClassVar[Category] = "lease"
    is_replayed: ClassVar[bool] = True


class LeasesSettled(ProcessEvent, frozen=True):
    """The worker has ended, and its leases are accounted for. All figures are samples."""

    trained: int  # applied, but not reported before the worker ended
    skipped: int
    returned: int  # given back to the ledger, to be trained again

    durability: ClassVar[Durability] = "soon"
    is_replayed: ClassVar[bool] = True


class BatchTorn(ProcessEvent, frozen=True):
    """The worker died within a batch, or within several: rows may hold a part of each. with_supervisor: the supervisor
    died, too."""

    batches: int = 1
    with_supervisor: bool = False

    category: ClassVar[Category] = "fault"
    is_replayed: ClassVar[bool] = True


class SamplesQuarantined(Event, frozen=True):
    """Positions are no longer trained. cause: "deaths": several workers died while training them; "roll_back": they
    caused a roll back. process: name of the worker that died last; "" for a roll back."""

    entry: Quarantined
    cause: QuarantineCause
    process: str = ""

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"
    is_replayed: ClassVar[bool] = True

    @property
    def subject(self) -> str:
        return self.process


class PositionsLeftOut(ProcessEvent, frozen=True):
    """In sync mode, a micro-batch is left out of its step. failures: number of workers that died while training it."""

    unit: int
    start: int
    stop: int
    failures: int

    category: ClassVar[Category] = "decision"


class MicroBatchesAssigned(Event, frozen=True):
    """In sync mode, the micro-batches of a step were shared out. shares: index of a worker -> number of micro-batches
    that it computes."""

    shares: dict[int, int]
    reason: str

    category: ClassVar[Category] = "decision"


class EvaluationStarted(Event, frozen=True):
    """Workers start to score the test set. samples: training samples accounted for so far."""

    samples: int
    reason: str

    category: ClassVar[Category] = "decision"


class EvaluationFinished(Event, frozen=True):
    """Metrics of the test set. samples: training samples accounted for when the evaluation started; test_samples:
    samples scored. memory: the state of evaluations that a resume continues from. reason: the verdict on early
    stopping."""

    samples: int
    test_samples: int
    seconds: float
    auc: float | None
    logloss: float | None
    truth_auc: float | None
    memory: EvaluationMemory
    reason: str

    is_replayed: ClassVar[bool] = True


class MetricFailed(Event, frozen=True):
    """A metric function of the user gave no figure in an evaluation. The run goes on without it."""

    function: str
    label: str
    problem: str

    category: ClassVar[Category] = "warning"


class InputTuned(Event, frozen=True):
    """The tuner decided about the input: the workers read with other knobs, or the present ones stay. only_watches: the
    decision is not carried out."""

    decision: InputDecision
    only_watches: bool = False

    category: ClassVar[Category] = "decision"


class SourceTroubled(ProcessEvent, frozen=True):
    """The source of a worker's training data gives no bytes, and the worker waits for it. source: the address. error:
    what the last request ended with. waited_s: seconds without a byte so far. requests: that failed since then."""

    trouble: SourceTrouble
    source: str
    error: str
    waited_s: float
    requests: int

    category: ClassVar[Category] = "fault"


class SourceRecovered(ProcessEvent, frozen=True):
    """Bytes arrive again. waited_s: seconds for which a worker had none. requests: that failed meanwhile."""

    source: str
    waited_s: float
    requests: int
