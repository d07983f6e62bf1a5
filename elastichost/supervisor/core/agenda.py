"""What the run as a whole should do next: another epoch, an evaluation, a checkpoint, the end. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "BeginCheckpoint",
    "BeginEpoch",
    "BeginEvaluation",
    "Finish",
    "Policy",
    "Situation",
    "Step",
    "Wait",
    "next_step",
]


class Policy(msgspec.Struct, frozen=True):
    """What the job file says. 0: never (evaluation, early stop), only at the end (checkpoint)."""

    has_test: bool
    evaluate_every_samples: int
    early_stop_patience: int
    checkpoint_every_s: float
    is_sync: bool = False


class Situation(msgspec.Struct, frozen=True):
    """The run at this moment. Samples count what is accounted for: trained, skipped, quarantined."""

    is_stopping: bool
    is_epoch_done: bool
    is_finished: bool  # the last epoch is done
    has_outstanding: bool  # leases are out
    samples: int
    live_workers: int
    unsettled_workers: int  # dead or about to be, and the dense owner has not yet said what it applied of them
    servers_ready: bool
    checkpoint_open: bool
    evaluation_open: bool
    checkpointed_at: int | None  # `samples` at the last committed checkpoint
    evaluated_at: int | None
    checkpoint_not_before_s: float  # the next periodic one, or the retry of one that was abandoned
    retry_not_before_s: float


class Wait(msgspec.Struct, frozen=True):
    reason: str


class BeginEpoch(msgspec.Struct, frozen=True):
    reason: str


class BeginEvaluation(msgspec.Struct, frozen=True):
    reason: str


class BeginCheckpoint(msgspec.Struct, frozen=True):
    reason: str
    is_final: bool


class Finish(msgspec.Struct, frozen=True):
    status: Literal["done", "stopped"]
    reason: str


Step = Wait | BeginEpoch | BeginEvaluation | BeginCheckpoint | Finish


def next_step(situation: Situation, policy: Policy, now_s: float) -> Step:
    if situation.checkpoint_open:
        return Wait("a checkpoint is being taken")
    if situation.is_stopping:
        return _stop(situation, now_s)
    if situation.evaluation_open:
        return Wait("an evaluation is running")
    if situation.is_epoch_done:
        return _epoch_done(situation, policy, now_s)
    since = situation.samples - (situation.evaluated_at or 0)
    if policy.has_test and 0 < policy.evaluate_every_samples <= since:
        if policy.is_sync and situation.has_outstanding:
            return Wait("the crew is evaluated when it has done what it was given")
        return BeginEvaluation(f"{since} samples since the last one")
    is_due = policy.checkpoint_every_s > 0 and situation.checkpoint_not_before_s <= now_s
    if is_due and situation.samples != (situation.checkpointed_at or 0) and _can_cut(situation, now_s):
        return BeginCheckpoint(f"every {policy.checkpoint_every_s:g} s", is_final=False)
    return Wait("training")


def _stop(situation: Situation, now_s: float) -> Step:
    if situation.live_workers:
        return Wait("workers finish their batch and give their leases back")
    if situation.checkpointed_at == situation.samples and not situation.unsettled_workers:
        return Finish("stopped", "asked to stop; the last checkpoint holds everything")
    return _final_checkpoint(situation, "asked to stop", now_s)


def _epoch_done(situation: Situation, policy: Policy, now_s: float) -> Step:
    is_evaluated = situation.evaluated_at == situation.samples
    if not situation.is_finished:
        if policy.has_test and policy.early_stop_patience and not is_evaluated:
            return BeginEvaluation("the end of an epoch decides on an early stop")
        return BeginEpoch("the last epoch's samples are all accounted for")
    if policy.has_test and not is_evaluated:
        return BeginEvaluation("training is done")
    if situation.checkpointed_at != situation.samples:
        return _final_checkpoint(situation, "training is done", now_s)
    return Finish("done", "trained, evaluated and saved")


def _final_checkpoint(situation: Situation, reason: str, now_s: float) -> Step:
    if not _can_cut(situation, now_s):
        return Wait("the last checkpoint waits until every PS serves and every lost worker is settled")
    return BeginCheckpoint(reason, is_final=True)


def _can_cut(situation: Situation, now_s: float) -> bool:
    ready = situation.servers_ready and not situation.unsettled_workers
    return ready and situation.retry_not_before_s <= now_s
