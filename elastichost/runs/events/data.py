"""Events about samples: leases, batches, what is left out, evaluations. Pure values."""

from __future__ import annotations

from typing import ClassVar, Literal

from elastichost.runs.events.base import Category, Durability, Event, ProcessEvent
from elastichost.runs.facts import EvaluationMemory, Quarantined

__all__ = [
    "BatchTorn",
    "EvaluationFinished",
    "EvaluationStarted",
    "LeaseGranted",
    "LeasesFolded",
    "LeasesSettled",
    "MicroBatchesAssigned",
    "PositionsLeftOut",
    "QuarantineCause",
    "SamplesQuarantined",
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
    """One line in place of many leases. lease: the highest number; epoch: of the last one; incarnations: name of a
    worker -> its highest."""

    leases: int
    lease: int
    epoch: int
    incarnations: dict[str, int]

    category: ClassVar[Category] = "lease"
    is_replayed: ClassVar[bool] = True


class LeasesSettled(ProcessEvent, frozen=True):
    """The worker is gone, and its leases are accounted for. Figures are samples."""

    trained: int  # applied, but not reported before
    skipped: int
    returned: int

    durability: ClassVar[Durability] = "soon"
    is_replayed: ClassVar[bool] = True


class BatchTorn(ProcessEvent, frozen=True):
    """The worker died within batches: rows may hold a part of them. with_supervisor: the supervisor died too."""

    batches: int = 1
    with_supervisor: bool = False

    category: ClassVar[Category] = "fault"
    is_replayed: ClassVar[bool] = True


class SamplesQuarantined(Event, frozen=True):
    """Positions are not trained any more: workers kept dying on them, or the run was rolled back because of them.
    process: name of the worker that died last, "" for a roll back."""

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
    """In sync mode a micro-batch is left out of its step: so many workers died on it."""

    unit: int
    start: int
    stop: int
    failures: int

    category: ClassVar[Category] = "decision"


class MicroBatchesAssigned(Event, frozen=True):
    """In sync mode: how many micro-batches of a step each worker computes, by the worker's index."""

    shares: dict[int, int]
    reason: str

    category: ClassVar[Category] = "decision"


class EvaluationStarted(Event, frozen=True):
    """Workers score the test set. samples: accounted for so far."""

    samples: int
    reason: str

    category: ClassVar[Category] = "decision"


class EvaluationFinished(Event, frozen=True):
    """Figures of the test set. samples: of training, accounted for when it began; test_samples: that were scored.
    memory: what a resume goes on from. reason: the verdict on stopping early."""

    samples: int
    test_samples: int
    seconds: float
    auc: float | None
    logloss: float | None
    truth_auc: float | None
    memory: EvaluationMemory
    reason: str

    is_replayed: ClassVar[bool] = True
