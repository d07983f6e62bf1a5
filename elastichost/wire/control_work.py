"""Messages of the control conversation about the work of a worker: its input, and the steps of sync mode.
`wire.control` explains the docstrings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from elastichost.wire.facts import Amount, Count, InputKnobs, Lease, Message

__all__ = ["CrewMsg", "InputKnobsMsg", "SourceTrouble", "SourceTroubleMsg", "StepsGrantMsg"]

# stalled: no byte for a while. reset: the connection ended early, or was refused. refused: an answer that may change,
# such as 503. gone: no byte for as long as the job has patience. recovered: bytes arrive again.
SourceTrouble = Literal["stalled", "reset", "refused", "gone", "recovered"]
Text = Annotated[str, msgspec.Meta(max_length=500)]

# --- process -> supervisor -----------------------------------------------------------------------------


class SourceTroubleMsg(Message, frozen=True):
    """From a worker whose source has a trouble, which the worker waits out, or has recovered from it. waited_s: seconds
    without a byte so far. requests: requests that failed since the source worked last."""

    trouble: SourceTrouble
    source: Text
    error: Text = ""
    waited_s: Amount = 0.0
    requests: Count = 0


# --- supervisor -> process -----------------------------------------------------------------------------


class InputKnobsMsg(Message, frozen=True):
    """To a worker: read with these knobs from now on. Nothing that was read is lost. cache_bytes: bound of the decoded
    units in memory of all workers of its host."""

    knobs: InputKnobs
    cache_bytes: Count = 0


class StepsGrantMsg(Message, frozen=True):
    """To every worker in sync mode: the crew trains this range in steps of train.batch_size, from `first_step` on."""

    lease: Lease
    shuffle_seed: int  # -1: file order
    first_step: int


class CrewMsg(Message, frozen=True):
    """To every worker in sync mode: the worker of each micro-batch of the uncommitted steps. Epochs only grow."""

    epoch: int
    workers: tuple[int, ...]  # for each micro-batch the index of the worker that computes it
    left_out: tuple[tuple[int, int], ...] = ()  # (step, micro-batch) that no worker computes: its samples are skipped
