"""The data conversation (PS ROUTER; workers, and PS that copy buckets, DEALER), as tagged msgspec structs. Each
docstring says who sends it to whom, and which raw frames follow it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from elastichost.micro_batches import MAX_MICRO_BATCHES
from elastichost.wire.facts import Amount, Count, Count32, Message, Sequence

__all__ = [
    "BucketFetchMsg",
    "BucketPartMsg",
    "ClockAdvancedMsg",
    "ClockReachedMsg",
    "DataMessage",
    "DenseFetchMsg",
    "DensePushMsg",
    "DensePushedMsg",
    "PullMsg",
    "PulledMsg",
    "PushMsg",
    "PushedMsg",
    "RetryMsg",
    "RowsAppliedMsg",
    "RowsCommittedMsg",
    "StepAskMsg",
    "StepReachedMsg",
]

Micro = Annotated[int, msgspec.Meta(ge=0, lt=MAX_MICRO_BATCHES)]
Micros = Annotated[int, msgspec.Meta(ge=1, le=MAX_MICRO_BATCHES)]
Mailbox = Annotated[int, msgspec.Meta(ge=-1, le=1)]
Batch = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Loss = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]

# --- worker -> PS -----------------------------------------------------------------------------------------------------


class PullMsg(Message, frozen=True):
    """Worker -> PS: keys to rows, and with `weights` also their weights (served access).

    Frame 0: keys int64, table after table (counts[t] keys of table t); unique within a table; for fixed tables the key
    is the row. With `create`, dynamic tables make rows for new ids (subject to admission).
    """

    request: Count
    shard_map_epoch: Count
    create: bool
    weights: bool
    counts: tuple[Count32, ...]  # one per table of the model
    clock: Count = 0  # samples trained so far, for eviction by age
    step: Sequence = 0  # sync mode: the step these rows are for; all before it are committed


class PushMsg(Message, frozen=True):
    """Worker -> PS: gradients of unique rows (served access). The PS stages them; they are applied when the batch is
    committed, which the PS learns as the dense owner, from RowsCommittedMsg, or from `committed` of the next push.

    Frame 0: rows int64, table after table (counts[t] rows of table t), as PulledMsg gave them (rows >= 0). Frame 1:
    gradients float32, summed over the batch, laid out as the weights of PulledMsg.
    """

    request: Count
    sequence: Sequence  # the worker's batch; a PS applies a (worker, incarnation, sequence) once
    shard_map_epoch: Count
    counts: tuple[Count32, ...]  # one per table of the model
    committed: Sequence = 0  # this incarnation's batches up to here are committed
    step: Sequence = 0  # sync mode: instead of `sequence`; all before it are committed
    micro: Micro = 0  # sync mode: the number of the micro-batch within the step
    learning_rate_scale: Amount = 1.0


class RowsCommittedMsg(Message, frozen=True):
    """Worker -> PS: this incarnation's batches up to `sequence` are committed: apply what is staged of them. The answer
    is RowsAppliedMsg."""

    request: Count
    sequence: Sequence


class DensePushMsg(Message, frozen=True):
    """Worker -> dense owner: gradient of one batch; its application commits the batch. In sync mode it is the part of
    one micro-batch in its step's gradient; the step is committed when all its micro-batches are there.

    Frame 0 when `mailbox` is -1: float32 [dense.elements] (gradients, then buffer values); otherwise the vector
    lies in that half (0 or 1) of the worker's mailbox in the arena, with this very message, and there is no frame.
    """

    request: Count
    sequence: Sequence
    mailbox: Mailbox
    lease_id: Count
    epoch: Count32
    unit: Count32
    start: Count
    stop: Count
    samples: Count32
    skipped: Count32
    want_parameters: bool  # answer with the parameters (served access)
    learning_rate_scale: Amount = 1.0
    shard_map_epoch: Count = 0  # under which rows were staged (served access); of an older one it is refused
    loss_sum: Loss = 0.0  # over the samples
    step: Sequence = 0  # sync mode: the step that this micro-batch is part of ...
    micro: Micro = 0  # ... its number ...
    micros: Micros = 1  # ... how many the step has ...
    is_left_out: bool = False  # ... and whether it is skipped because workers died on it


class DenseFetchMsg(Message, frozen=True):
    """Worker -> dense owner: the present dense vector, please (served access; at start and before evaluation)."""

    request: Count


class StepAskMsg(Message, frozen=True):
    """Worker -> dense owner (sync mode): may I begin this step? Answered with StepReachedMsg when all steps before it
    are committed; when it is committed itself, with the one that is next. `shard_map_epoch` must be the PS' own."""

    request: Count
    step: Sequence
    shard_map_epoch: Count


class ClockAdvancedMsg(Message, frozen=True):
    """Worker -> dense owner (bounded mode): this incarnation has finished `batch` batches; answer ClockReachedMsg when
    every member has finished `batch - staleness`. `batch` -1: idle, do not wait for me (answered at once)."""

    request: Count
    batch: Batch
    staleness: Count


# --- PS -> PS ---------------------------------------------------------------------------------------------------------


class BucketFetchMsg(Message, frozen=True):
    """PS -> PS that has a bucket: a part of it, please. One request at a time about a bucket; a later one has a greater
    number, and a number that is not greater is not answered. Rows are counted within the bucket.

    open: from now on remember which rows change; the answer has no frames. rows: those from `start` to `stop`, all that
    changes of them later counts as changed. changed: rows from `start` on that have changed, at most `stop - start`.
    check: the checksum of all of the rows from `start` to `stop`, with their ids and stamps.
    `again`: the answer to the request before never came, or was damaged.
    """

    request: Count
    table: Count32
    bucket: Count32
    what: Literal["open", "rows", "changed", "check"]
    start: Count = 0
    stop: Count = 0
    again: bool = False


class BucketPartMsg(Message, frozen=True):
    """PS -> PS: answer to BucketFetchMsg. `rows`: how many the bucket has now. `crc32`: over the frames, or what was
    asked for by "check".

    rows: for each embedding of the table its rows, then its optimizer state if it has some, [stop - start]. changed:
    the row numbers int64 first; `stop` is where the next part begins, `left` how many more have changed. check: of
    a dynamic table ids int64, stamps uint32 [stop - start].
    """

    request: Count
    rows: Count
    start: Count
    stop: Count
    crc32: Count32
    left: Count = 0
    heat: Count = 0  # keys asked for in this bucket so far


# --- PS -> worker -----------------------------------------------------------------------------------------------------


class PulledMsg(Message, frozen=True):
    """Frame 0: rows int64, one for each key (-1: no row: not admitted, or unknown without `create`). Frame 1, when
    weights were asked for: float32, flat; embedding after embedding, in the model's order, [rows of its table,
    padded_dim], zeros where the row is -1. Rows kept as bfloat16 are widened."""

    request: int


class PushedMsg(Message, frozen=True):
    """The rows' gradients are staged (or were before: `duplicate`)."""

    request: int
    duplicate: bool = False


class RowsAppliedMsg(Message, frozen=True):
    """Nothing of this incarnation up to that sequence is staged any more."""

    request: int
    sequence: int


class DensePushedMsg(Message, frozen=True):
    """The batch is committed. Frame 0 if asked for: float32 [dense.elements], the new parameters and buffers."""

    request: int
    sequence: int
    version: int
    samples_applied: int  # by all workers, since the job began: the learning rate schedule's clock
    duplicate: bool = False


class StepReachedMsg(Message, frozen=True):
    """`step` is the first one that is not committed. Frame 0: float32 [dense.elements], the vector it begins with."""

    request: int
    step: int
    samples_applied: int


class ClockReachedMsg(Message, frozen=True):
    """Answer to ClockAdvancedMsg, sent when it is true."""

    request: int
    slowest: int


class RetryMsg(Message, frozen=True):
    """The PS cannot serve this request: stale shard map, bucket being moved, or fenced (`final`)."""

    request: int
    reason: str
    shard_map_epoch: int
    final: bool = False


DataMessage = (
    PullMsg
    | BucketFetchMsg
    | BucketPartMsg
    | PushMsg
    | RowsCommittedMsg
    | DensePushMsg
    | DenseFetchMsg
    | ClockAdvancedMsg
    | StepAskMsg
    | StepReachedMsg
    | PulledMsg
    | PushedMsg
    | RowsAppliedMsg
    | DensePushedMsg
    | ClockReachedMsg
    | RetryMsg
)
