"""Events about the plan: which processes should run, the origin of the plan, the cost of its change. Pure values."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from elastichost.plan import Access, Plan
from elastichost.runs.events.base import Category, Event
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.decision import Decision

__all__ = [
    "Counts",
    "PlanChanged",
    "PlanOrigin",
    "PlanReached",
    "ProposalGranted",
    "TunerDecided",
    "TunerFailed",
    "TunerOff",
    "TunerOnlyWatches",
]

# Where a plan comes from. start: the first plan of a supervisor; scale: a command; trial: the tuner measures it for a
# while; "": anything else.
PlanOrigin = Literal["start", "scale", "trial", ""]


class Counts(msgspec.Struct, frozen=True):
    """The size of a plan. worker_cores: threads of a worker (the maximum over all workers)."""

    workers: int
    servers: int
    worker_cores: int

    @classmethod
    def of(cls, plan: Plan) -> Counts:
        return cls(len(plan.workers), len(plan.servers), max((spec.threads for spec in plan.workers), default=1))


class PlanChanged(Event, frozen=True):
    """A new plan is in effect. processes: names of all processes that should run."""

    workers: int
    servers: int
    worker_cores: int
    processes: tuple[str, ...]
    access: Access
    reason: str
    origin: PlanOrigin = ""

    category: ClassVar[Category] = "decision"
    is_replayed: ClassVar[bool] = True


class PlanReached(Event, frozen=True):
    """A plan change is complete. Times are seconds since the plan changed; None where nothing was measured. dip: lowest
    throughput during the change, as a share of the throughput before it."""

    before: Counts
    after: Counts
    reached_s: float
    first_sample_s: dict[int, float | None]  # index of a new worker -> time of its first sample
    handover_s: float | None  # from freeze to publish, sum over all hand-overs
    buckets_moved: int
    rate_before: float  # samples/s
    dip: float | None
    recovered_s: float | None

    @property
    def lost_s(self) -> float:
        """Training time that the change lost, in seconds at the rate before it.

        The dip is approximated as a triangle. It lasts until the throughput recovered; if the throughput did not
        recover, as after a change to fewer processes, it lasts until the plan was reached."""
        depth = 1.0 - min(1.0, self.dip) if self.dip is not None else 0.0
        lasted_s = self.recovered_s if self.recovered_s is not None else self.reached_s
        return depth * lasted_s / 2


class TunerDecided(Event, frozen=True):
    """The tuner decided on a new plan, or to keep the present one. only_watches: the decision is not carried out.
    is_proposal: it is carried out when the dispatcher grants it. The inputs of the decision are in decisions.jsonl."""

    decision: Decision
    only_watches: bool = False
    is_proposal: bool = False

    category: ClassVar[Category] = "decision"
    is_replayed: ClassVar[bool] = True


class ProposalGranted(Event, frozen=True):
    """The dispatcher granted what the tuner of the run had proposed; a plan change follows."""

    configuration: Configuration

    category: ClassVar[Category] = "decision"


class TunerOff(Event, frozen=True):
    """The tuner is off, because it has no choice of plans in this run."""

    reason: str

    category: ClassVar[Category] = "decision"


class TunerOnlyWatches(Event, frozen=True):
    """A person requested a size: it stays, and from now on the decisions of the tuner are not carried out."""

    category: ClassVar[Category] = "decision"


class TunerFailed(Event, frozen=True):
    """The tuner stopped after an internal error; the plan stays."""

    error_type: str
    message: str

    category: ClassVar[Category] = "warning"
