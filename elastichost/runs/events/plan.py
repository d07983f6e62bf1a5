"""Events about the plan: what should run, who asked for it, and what the change took. Pure values."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from elastichost.plan import Access, Plan
from elastichost.runs.events.base import Category, Event
from elastichost.tuner.policy.decision import Decision

__all__ = [
    "Counts",
    "PlanChanged",
    "PlanOrigin",
    "PlanReached",
    "TunerDecided",
    "TunerFailed",
    "TunerOff",
    "TunerOnlyWatches",
]

# of a plan: the first one of a supervisor, a command's, one that the tuner only tries, any other
PlanOrigin = Literal["start", "scale", "trial", ""]


class Counts(msgspec.Struct, frozen=True):
    """What a plan is made of. `worker_cores`: threads of a worker."""

    workers: int
    servers: int
    worker_cores: int

    @classmethod
    def of(cls, plan: Plan) -> Counts:
        return cls(len(plan.workers), len(plan.servers), max((spec.threads for spec in plan.workers), default=1))


class PlanChanged(Event, frozen=True):
    """The run has another plan from now on. processes: names of all that should run."""

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
    """A change of the plan is over, and this is what it took. Times are seconds since the plan changed, None where
    there was nothing to measure. dip: lowest throughput during the change over the throughput before it."""

    before: Counts
    after: Counts
    reached_s: float
    first_sample_s: dict[int, float | None]  # of each new worker
    handover_s: float | None  # freeze to publish, of all hand-overs together
    buckets_moved: int
    rate_before: float  # samples/s
    dip: float | None
    recovered_s: float | None

    @property
    def lost_s(self) -> float:
        """Seconds of training at the rate before that the change lost: the dip taken as a triangle. Of a change to
        fewer processes that is none of its own; the time to reach the plan bounds it."""
        depth = 1.0 - min(1.0, self.dip) if self.dip is not None else 0.0
        lasted_s = self.recovered_s if self.recovered_s is not None else self.reached_s
        return depth * lasted_s / 2


class TunerDecided(Event, frozen=True):
    """The tuner wants another plan, or keeps the one there is. only_watches: its decision is not carried out. What the
    decision was made from is in decisions.jsonl."""

    decision: Decision
    only_watches: bool = False

    category: ClassVar[Category] = "decision"
    is_replayed: ClassVar[bool] = True


class TunerOff(Event, frozen=True):
    """The tuner has nothing to choose from in this run."""

    reason: str

    category: ClassVar[Category] = "decision"


class TunerOnlyWatches(Event, frozen=True):
    """A person asked for a size: it stays, and from now on the tuner only watches."""

    category: ClassVar[Category] = "decision"


class TunerFailed(Event, frozen=True):
    """The tuner gave up after a fault of its own; the plan stays."""

    error_type: str
    message: str

    category: ClassVar[Category] = "warning"
