"""The lines of `decisions.jsonl`: the input and the result of every decision. Pure values.

A part of the tuner (tuner, health, balance, memory) first writes an `...Opened` record with its settings. For each
sample that it evaluates it then writes a `...Looked` record with the sample and the decision. The same functions, fed
with the recorded samples, must give the recorded decisions (`replay`). A resumed run opens its parts again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from elastichost.history.features import Estimates
from elastichost.plan import Plan
from elastichost.tuner.first_plan import FirstPlanRequest
from elastichost.tuner.health import HealthSettings, Remark, WorkerSpeed
from elastichost.tuner.health_record import WorkerSpeeds
from elastichost.tuner.input.facts import InputDecision, InputLook, InputTunerSettings
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
    "InputLooked",
    "InputOpened",
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
    """The first plan of a run, before its processes are pinned to cores."""

    request: FirstPlanRequest
    plan: Plan


class TunerOpened(_RecordLine, frozen=True):
    """The tuner starts."""

    settings: TunerSettings


class TunerLooked(_RecordLine, frozen=True):
    """The tuner evaluated one sample. decision: None: no decision was due."""

    look: ProfileSample
    samples_left: int
    decision: Decision | None = None


class InputOpened(_RecordLine, frozen=True):
    """The tuner of the input starts."""

    settings: InputTunerSettings


class InputLooked(_RecordLine, frozen=True):
    """The tuner of the input evaluated one sample. decision: None: no decision was due."""

    look: InputLook
    decision: InputDecision | None = None


class HealthOpened(_RecordLine, frozen=True):
    """The comparison of worker speeds starts."""

    settings: HealthSettings


class HealthLooked(_RecordLine, frozen=True):
    """One sample of worker speeds in the old format, in which every sample was recorded. Old records are replayed."""

    now_s: float
    speeds: tuple[WorkerSpeed, ...]
    remarks: tuple[Remark, ...] = ()


class SpeedsLooked(_RecordLine, frozen=True, omit_defaults=True):
    """One sample of worker speeds: recorded where `health_record.is_telling` is true, and once a minute."""

    now_s: float
    speeds: WorkerSpeeds
    remarks: tuple[Remark, ...] = ()


class BalanceOpened(_RecordLine, frozen=True):
    """The rebalancing of buckets starts."""

    half_life_s: float


class BalanceLooked(_RecordLine, frozen=True):
    """One sample of the load of buckets, and the decision about it.

    asked: (table, bucket, keys): keys of each bucket that workers needed since the sample before; zeros are left out.
    owners: (table, bucket, PS): the PS of every bucket; None: unchanged. speeds: PS -> keys that workers need for each
    key that they request from it; more than 1 where workers access the rows of their own host in place. busiest: share
    of the time in which the busiest PS serves requests, 0 to 1. kind: kind of the decision, or "moved". moves: (table,
    bucket, new owner). was_begun: whether the moves could be started."""

    now_s: float
    asked: tuple[tuple[int, int, float], ...]
    owners: tuple[tuple[int, int, int], ...] | None
    speeds: dict[int, float]
    busiest: float
    kind: str
    moves: tuple[tuple[int, int, int], ...] = ()
    was_begun: bool = True


class MemoryOpened(_RecordLine, frozen=True):
    """The memory forecast starts. memory: estimates from similar jobs."""

    memory: Estimates = Estimates()


class MemoryLooked(_RecordLine, frozen=True):
    """The memory forecast evaluated one sample."""

    now_s: float
    look: MemorySample
    decision: MemoryDecision


def moves_of(decision: Rebalance, owners: Mapping[BucketKey, int]) -> tuple[tuple[int, int, int], ...]:
    """Returns (table, bucket, new owner) of each bucket that gets another owner."""
    return tuple((*key, to) for key, to in sorted(decision.owners.items()) if owners[key] != to)


Record = (
    FirstPlanMade
    | TunerOpened
    | TunerLooked
    | InputOpened
    | InputLooked
    | HealthOpened
    | HealthLooked
    | SpeedsLooked
    | BalanceOpened
    | BalanceLooked
    | MemoryOpened
    | MemoryLooked
)
