"""What a run does next: another epoch, an evaluation, a checkpoint, or the end. Pure.

Rules, the first one that applies decides:

1. While a checkpoint is open, the run waits.
2. A run that was asked to stop waits until its workers have drained. Then it takes a final checkpoint, and finishes.
   It takes none if the last checkpoint already holds every sample.
3. While an evaluation is open, the run waits.
4. When an epoch is done, the next one begins; with early stopping, an evaluation decides first. After the last epoch
   the run evaluates, takes a final checkpoint, and finishes.
5. When the last evaluation was the best one and its checkpoint is to be kept, this checkpoint is taken next. Workers
   get no leases until then, so it has the weights that were evaluated.
6. Within an epoch, an evaluation begins every `evaluate_every_samples` samples. In sync mode, or when the best
   checkpoint is kept, it begins only when no lease is outstanding: in sync mode all members of the crew have then
   reached the same step, and no evaluated weight changes.
7. A periodic checkpoint begins when it is due and samples were accounted for since the last one.

Theory of operation. The training phase calls `next_step` every turn with a snapshot of the run (`Situation`) and the
settings of the job (`Policy`), and performs the step that it returns. This module keeps no state. A checkpoint begins
only when every PS serves, no lost worker is unsettled, and the wait after a failed checkpoint is over; until then the
step is `Wait`, or training goes on. So the death of a process needs no rule of its own: it changes the snapshot (for
example `unsettled_workers` > 0), and the checkpoint begins in a later turn. After the death of the supervisor, the
resumed run computes the same snapshot from its ledger.
"""

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
    """Settings of the job. 0 means never for an evaluation or an early stop, and only at the end for a checkpoint.
    keeps_best: the best checkpoint is kept."""

    has_test: bool
    evaluate_every_samples: int
    early_stop_patience: int
    checkpoint_every_s: float
    is_sync: bool = False
    keeps_best: bool = False


class Situation(msgspec.Struct, frozen=True):
    """The run at this moment. Sample counts are of positions accounted for: trained, skipped, quarantined."""

    is_stopping: bool
    is_epoch_done: bool
    is_finished: bool  # the last epoch is done
    has_outstanding: bool  # workers hold leases
    samples: int
    live_workers: int  # drained ones are not counted
    unsettled_workers: int  # dead or about to end, and their last batches are not settled yet
    servers_ready: bool
    checkpoint_open: bool
    evaluation_open: bool
    best_waits: bool  # the last evaluation was the best one, and its checkpoint is not written yet
    checkpointed_at: int | None  # `samples` at the last committed checkpoint
    evaluated_at: int | None  # `samples` when the last finished evaluation began
    checkpoint_not_before_s: float  # when the next periodic checkpoint is due
    retry_not_before_s: float  # after a failed checkpoint: no checkpoint begins before this time


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
    """The step to perform now."""
    if situation.checkpoint_open:
        return Wait("a checkpoint is being taken")
    if situation.is_stopping:
        return _stop(situation, now_s)
    if situation.evaluation_open:
        return Wait("an evaluation is running")
    if situation.best_waits:
        if not _can_cut(situation, now_s):
            return Wait("the checkpoint of the best weights waits until every PS serves and no worker is unsettled")
        return BeginCheckpoint("the evaluation is the best so far", is_final=situation.is_finished)
    if situation.is_epoch_done:
        return _epoch_done(situation, policy, now_s)
    since = situation.samples - (situation.evaluated_at or 0)
    if policy.has_test and 0 < policy.evaluate_every_samples <= since:
        if (policy.is_sync or policy.keeps_best) and situation.has_outstanding:
            return Wait("the evaluation begins when the workers have finished their leases")
        return BeginEvaluation(f"{since} samples since the last evaluation")
    is_due = policy.checkpoint_every_s > 0 and situation.checkpoint_not_before_s <= now_s
    if is_due and situation.samples != (situation.checkpointed_at or 0) and _can_cut(situation, now_s):
        return BeginCheckpoint(f"one every {policy.checkpoint_every_s:g} s", is_final=False)
    return Wait("training")


def _stop(situation: Situation, now_s: float) -> Step:
    if situation.live_workers:
        return Wait("workers finish their batch and give their leases back")
    is_saved = situation.checkpointed_at == situation.samples and not situation.best_waits
    if is_saved and not situation.unsettled_workers:
        return Finish("stopped", "asked to stop; the last checkpoint holds all trained samples")
    return _final_checkpoint(situation, "asked to stop", now_s)


def _epoch_done(situation: Situation, policy: Policy, now_s: float) -> Step:
    is_evaluated = situation.evaluated_at == situation.samples
    if not situation.is_finished:
        if policy.has_test and (policy.early_stop_patience or policy.keeps_best) and not is_evaluated:
            what = "early stopping is checked" if policy.early_stop_patience else "the best checkpoint is kept"
            return BeginEvaluation(f"an epoch is done, and {what}")
        return BeginEpoch("all samples of the epoch before are accounted for")
    if policy.has_test and not is_evaluated:
        return BeginEvaluation("training is done")
    if situation.checkpointed_at != situation.samples:
        return _final_checkpoint(situation, "training is done", now_s)
    return Finish("done", "trained, evaluated and saved")


def _final_checkpoint(situation: Situation, reason: str, now_s: float) -> Step:
    if not _can_cut(situation, now_s):
        return Wait("the final checkpoint waits until every PS serves and every lost worker is settled")
    return BeginCheckpoint(reason, is_final=True)


def _can_cut(situation: Situation, now_s: float) -> bool:
    ready = situation.servers_ready and not situation.unsettled_workers
    return ready and situation.retry_not_before_s <= now_s
