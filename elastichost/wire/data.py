"""Messages of the data conversation, as tagged msgspec structs. A PS has a ROUTER socket; workers, and PS that copy
buckets, have DEALER sockets.

Each docstring begins with the sender and the receiver, then states when the message is sent, and which raw frames
follow it; without such a statement there are none. A reply has the `request` number of its request. T is the number of
tables of the model.
"""

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
Base = Annotated[int, msgspec.Meta(ge=-(1 << 61), le=1 << 61)]
Loss = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]

# --- worker -> PS -----------------------------------------------------------------------------------------------------


class PullMsg(Message, frozen=True):
    """Worker -> PS: asks for the rows of keys, and with `weights` (served access) also for their weights. The answer is
    PulledMsg.

    Frame 0: keys int64, table after table (counts[t] keys of table t), distinct within a table. In a fixed table the
    key is the row. With `create` the PS makes rows for new ids of dynamic tables that are admitted.
    """

    request: Count
    shard_map_epoch: Count
    create: bool
    weights: bool
    counts: tuple[Count32, ...]  # [T]
    clock: Count = 0  # samples that all workers have trained so far, for eviction by age
    step: Sequence = 0  # sync mode: the step that uses these rows; all earlier steps are committed


class PushMsg(Message, frozen=True):
    """Worker -> PS (served access): the gradients of distinct rows of a batch. The PS stages them and answers with
    PushedMsg. It applies them when the batch is committed: at once if it is the dense owner that commits it, otherwise
    when a RowsCommittedMsg or `committed` of a later push covers the batch.

    Frame 0: rows int64, table after table (counts[t] rows of table t), as received in PulledMsg, none negative. Frame
    1: gradients float32, summed over the batch, in the layout of the weights of PulledMsg.
    """

    request: Count
    sequence: Sequence  # number of the worker's batch; a PS applies each (worker, incarnation, sequence) once
    shard_map_epoch: Count
    counts: tuple[Count32, ...]  # [T]
    committed: Sequence = 0  # this incarnation's batches up to this one are committed
    step: Sequence = 0  # sync mode: number of the step, in place of `sequence`; all earlier steps are committed
    micro: Micro = 0  # sync mode: number of the micro-batch within the step
    learning_rate_scale: Amount = 1.0


class RowsCommittedMsg(Message, frozen=True):
    """Worker -> PS: this incarnation's batches up to `sequence` are committed. The PS applies their staged pushes, and
    answers with RowsAppliedMsg."""

    request: Count
    sequence: Sequence


class DensePushMsg(Message, frozen=True):
    """Worker -> dense owner: the dense gradient of one batch. Its application commits the batch. In sync mode it is the
    part that one micro-batch adds to the gradient of its step, and the step is committed when the dense owner has the
    parts of all its micro-batches. The answer is DensePushedMsg.

    If `mailbox` is -1, frame 0 is the vector, float32 [dense.elements]: gradients, then buffer values. If it is 0 or 1,
    the vector is in this half of the worker's mailbox in the arena, with a copy of this message, and there is no frame.
    With `is_applied` the step of the optimizer was made in memory of the worker's GPU; there is no vector.
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
    shard_map_epoch: Count = 0  # served access: the epoch under which the rows were staged; an older one is refused
    loss_sum: Loss = 0.0  # over the samples
    step: Sequence = 0  # sync mode: number of the step
    micro: Micro = 0  # sync mode: number of the micro-batch within the step
    micros: Micros = 1  # sync mode: how many micro-batches the step has
    is_applied: bool = False
    is_left_out: bool = False  # sync mode: the micro-batch is skipped because workers died on it


class DenseFetchMsg(Message, frozen=True):
    """Worker -> dense owner (served access), at the start and before an evaluation: asks for the present dense vector.
    The answer is DensePushedMsg with the vector as frame 0."""

    request: Count


class StepAskMsg(Message, frozen=True):
    """Worker -> dense owner (sync mode): asks to begin this step. The answer is StepReachedMsg, as soon as all earlier
    steps are committed. If the step itself is committed, the answer names the next one. `shard_map_epoch` must be that
    of the PS."""

    request: Count
    step: Sequence
    shard_map_epoch: Count


class ClockAdvancedMsg(Message, frozen=True):
    """Worker -> dense owner (bounded mode): this incarnation has finished `batch` batches. The answer is
    ClockReachedMsg, as soon as every member has finished at least `batch - staleness` batches. `batch` -1: the worker
    is idle and the others do not wait for it; the answer comes at once. base: that of the last answer; None: the worker
    joins the clock, level with the slowest member."""

    request: Count
    batch: Batch
    staleness: Count
    base: Base | None = None


# --- PS -> PS ---------------------------------------------------------------------------------------------------------


class BucketFetchMsg(Message, frozen=True):
    """PS -> the PS that has a bucket: asks for a part of the bucket. The answer is BucketPartMsg.

    A PS sends one request at a time for a bucket, with growing numbers. A request whose number is not greater than the
    last one's is not answered. Rows are counted within the bucket. `what` is one of

        open      begin the copy: note from now on which rows change
        rows      send the rows `start` to `stop` - 1; later changes of them are noted
        changed   send changed rows from `start` on, at most `stop` - `start` of them
        check     send the checksum of the rows `start` to `stop` - 1, with their ids and stamps

    again: the answer to the previous request did not arrive or was damaged.
    """

    request: Count
    table: Count32
    bucket: Count32
    what: Literal["open", "rows", "changed", "check"]
    start: Count = 0
    stop: Count = 0
    again: bool = False


class BucketPartMsg(Message, frozen=True):
    """PS -> PS: the answer to BucketFetchMsg. The frames depend on `what` of the request; n is the number of rows sent.

    open      none
    rows      for each embedding of the table: its weights [n, padded_dim] in its own precision, then its optimizer
              state float32 if it has one; n = `stop` - `start`
    changed   the row numbers int64 [n], then frames as for rows
    check     for a dynamic table: ids int64 [n], stamps uint32 [n]; n = `stop` - `start`
    """

    request: Count
    rows: Count  # rows that the bucket has now
    start: Count
    stop: Count  # changed: where the next part begins
    crc32: Count32  # of the frames; check: of the rows, ids and stamps
    left: Count = 0  # changed: how many more rows have changed
    heat: Count = 0  # keys of this bucket that workers have asked for so far


# --- PS -> worker -----------------------------------------------------------------------------------------------------


class PulledMsg(Message, frozen=True):
    """PS -> worker: the answer to PullMsg. Frame 0: the row of each key, int64; below 0: the key has no row, because it
    is not admitted, there is no memory for it, or it is unknown and `create` was not set. Frame 1, with `weights`:
    float32, flat; embedding after embedding in the model's order, each [keys of its table, padded_dim], zeros for keys
    without a row. bfloat16 rows are converted to float32."""

    request: int


class PushedMsg(Message, frozen=True):
    """PS -> worker: the answer to PushMsg, when the gradients are staged. duplicate: they were staged or applied
    before."""

    request: int
    duplicate: bool = False


class RowsAppliedMsg(Message, frozen=True):
    """PS -> worker: the answer to RowsCommittedMsg: no push of this incarnation up to `sequence` is staged any more."""

    request: int
    sequence: int


class DensePushedMsg(Message, frozen=True):
    """Dense owner -> worker: the answer to DensePushMsg, when the batch is committed, and to DenseFetchMsg. Frame 0, if
    the request asked for it: float32 [dense.elements], the present parameters and buffers."""

    request: int
    sequence: int
    version: int
    samples_applied: int  # samples committed by all workers since the job began, for the learning rate schedule
    duplicate: bool = False


class StepReachedMsg(Message, frozen=True):
    """Dense owner -> worker: the answer to StepAskMsg. step: the first step that is not committed. Frame 0: float32
    [dense.elements], the dense vector with which the step begins."""

    request: int
    step: int
    samples_applied: int


class ClockReachedMsg(Message, frozen=True):
    """Dense owner -> worker: the answer to ClockAdvancedMsg, when the worker may continue. slowest: batches that the
    slowest member has finished. base: what is added to this worker's own count of batches."""

    request: int
    slowest: int
    base: int = 0


class RetryMsg(Message, frozen=True):
    """PS -> worker or PS: this PS cannot serve the request now, for example because of an older shard map, a bucket
    that is being moved, or a lack of memory. final: it never will, for example because the sender is fenced."""

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
