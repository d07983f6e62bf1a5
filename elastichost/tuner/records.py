"""What every decision was made from, and what it was: the lines of `decisions.jsonl`. Pure values.

A part of the tuner is opened with its settings; each of its looks follows with what it gave. Fed again to the same
functions they must give the same (`replay`). A resumed run opens its parts anew.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from elastichost.history.features import Estimates
from elastichost.plan import Plan
from elastichost.tuner.first_plan import FirstPlanRequest
from elastichost.tuner.health import HealthSettings, Remark, WorkerSpeed
from elastichost.tuner.health_record import WorkerSpeeds
from elastichost.tuner.memory.facts import MemoryDecision, MemorySample
from elastichost.tuner.placement.heat import BucketKey
from elastichost.tuner.placement.rebalance import Rebalance
from elastichost.tuner.policy.policy import Decision, TunerSettings
from elastichost.tuner.policy.profile import ProfileSample

__all__ = [
    "BalanceLooked",
    "BalanceOpened",
    "FirstPlanMade",
    "HealthLooked",
    "HealthOpened",
    "MemoryLooked",
    "MemoryOpened",
    "Record",
    "SpeedsLooked",
    "TunerLooked",
    "TunerOpened",
    "moves_of",
]


class _RecordLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class FirstPlanMade(_RecordLine, frozen=True):
    """plan: not pinned."""

    request: FirstPlanRequest
    plan: Plan


class TunerOpened(_RecordLine, frozen=True):
    settings: TunerSettings


class TunerLooked(_RecordLine, frozen=True):
    look: ProfileSample
    samples_left: int
    decision: Decision | None = None


class HealthOpened(_RecordLine, frozen=True):
    settings: HealthSettings


class HealthLooked(_RecordLine, frozen=True):
    """As every look was recorded once; such records are replayed still."""

    now_s: float
    speeds: tuple[WorkerSpeed, ...]
    remarks: tuple[Remark, ...] = ()


class SpeedsLooked(_RecordLine, frozen=True, omit_defaults=True):
    """The looks that `health_record.is_telling` names, and one a minute."""

    now_s: float
    speeds: WorkerSpeeds
    remarks: tuple[Remark, ...] = ()


class BalanceOpened(_RecordLine, frozen=True):
    half_life_s: float


class BalanceLooked(_RecordLine, frozen=True):
    """asked: keys of each bucket that workers needed since the look before, (table, bucket, keys), zeros left out.
    owners: PS of every bucket, (table, bucket, PS); None: as before. speeds: keys needed for each one that a PS is
    asked for, more than 1 where workers have rows of their own host in place. busiest: share of the time that the
    busiest PS serves. kind: of the decision; moves: (table, bucket, new owner), and whether they could be begun."""

    now_s: float
    asked: tuple[tuple[int, int, float], ...]
    owners: tuple[tuple[int, int, int], ...] | None
    speeds: dict[int, float]
    busiest: float
    kind: str
    moves: tuple[tuple[int, int, int], ...] = ()
    was_begun: bool = True


class MemoryOpened(_RecordLine, frozen=True):
    """A watch over memory begins. memory: what is known of jobs like it."""

    memory: Estimates = Estimates()


class MemoryLooked(_RecordLine, frozen=True):
    now_s: float
    look: MemorySample
    decision: MemoryDecision


def moves_of(decision: Rebalance, owners: Mapping[BucketKey, int]) -> tuple[tuple[int, int, int], ...]:
    """(table, bucket, new owner) of the buckets that change hands."""
    return tuple((*key, to) for key, to in sorted(decision.owners.items()) if owners[key] != to)


Record = (
    FirstPlanMade
    | TunerOpened
    | TunerLooked
    | HealthOpened
    | HealthLooked
    | SpeedsLooked
    | BalanceOpened
    | BalanceLooked
    | MemoryOpened
    | MemoryLooked
)
