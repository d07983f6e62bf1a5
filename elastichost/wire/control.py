"""Messages of the control conversation between the supervisor (ROUTER) and all processes (DEALER), as tagged structs.

A docstring has the sender (first part) or the receiver (second part), the occasion, and the raw frames, if any follow.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from elastichost.errors import SampleRange
from elastichost.specs import ModelSpec
from elastichost.wire.control_hosts import (
    AdmitMsg,
    AdmittedMsg,
    BucketsMeasuredMsg,
    CopiedMsg,
    CopyBucketsMsg,
    ForgetBucketsMsg,
    ForgottenMsg,
    KeepBucketsMsg,
    MeasureBucketsMsg,
    UnmappedMsg,
)
from elastichost.wire.control_work import CrewMsg, InputKnobsMsg, SourceTroubleMsg, StepsGrantMsg
from elastichost.wire.facts import (
    Amount,
    AppliedBatch,
    CommittedBatch,
    Count,
    Count32,
    Lease,
    Message,
    ServerAddress,
    StepSample,
)

__all__ = [
    "AdmitMsg",
    "AdmittedMsg",
    "BucketsMeasuredMsg",
    "ControlMessage",
    "CopiedMsg",
    "CopyBucketsMsg",
    "CrewMsg",
    "DrainMsg",
    "DrainedMsg",
    "EvaluationGrantMsg",
    "EvaluationScoresMsg",
    "FailureReportMsg",
    "FenceMsg",
    "FencedMsg",
    "ForgetBucketsMsg",
    "ForgottenMsg",
    "HeartbeatMsg",
    "HelloMsg",
    "InputKnobsMsg",
    "KeepBucketsMsg",
    "LeaseGrantMsg",
    "LeaseProgressMsg",
    "LeaseRequestMsg",
    "MeasureBucketsMsg",
    "MembershipMsg",
    "ModelDescribedMsg",
    "PauseMsg",
    "PausedMsg",
    "ProceedMsg",
    "ReadyMsg",
    "RepinMsg",
    "RepinnedMsg",
    "RestoreMsg",
    "SettleMsg",
    "SettledMsg",
    "ShardMapUpdateMsg",
    "SnapshotCutMsg",
    "SnapshotMsg",
    "SnapshotWrittenMsg",
    "SourceTroubleMsg",
    "StepsGrantMsg",
    "StopMsg",
    "UnmappedMsg",
    "UnsettledMsg",
]

Word = Annotated[str, msgspec.Meta(max_length=200)]

# --- process -> supervisor -----------------------------------------------------------------------------


class HelloMsg(Message, frozen=True):
    """From every process, as its first message."""

    role: str  # "worker" | "server" | "probe" | "reader"
    index: Count32
    incarnation: Count32
    pid: Count
    address: str = ""  # PS: the address of its data socket on its own machine
    outer: str = ""  # PS: the gate through which other machines reach that socket, "" if it has none


class ModelDescribedMsg(Message, frozen=True):
    """From the probe, when it has built the model on the meta device. Frame 0: the initial flat dense vector, float32
    [dense.elements]. From a probe before the run two more, as msgpack: a `WorkingSet` or null, `StepTime`s.

    reader_bytes, model_bytes: memory of a process that imports the user's own reader, and the user's own model; 0 for
    those of elastichost, and from the probe of a run."""

    model: ModelSpec
    warnings: tuple[str, ...] = ()
    reader_bytes: int = 0
    model_bytes: int = 0


class ReadyMsg(Message, frozen=True):
    """From a PS, when it has taken over the buckets of a shard map and serves them. From a worker, when it has built
    the model, before it asks for a lease.

    committed: from the present or the former dense owner: the last committed batch of each worker. Of the pushes that
    were staged under older epochs these batches count, and the dense owner commits no others."""

    shard_map_epoch: Count
    committed: tuple[CommittedBatch, ...] = ()


class HeartbeatMsg(Message, frozen=True):
    """From the work loop of a worker or a PS, every HEARTBEAT_S. progress: grows only while the loop makes progress."""

    progress: Count
    sample: StepSample
    state: Word = ""  # the activity of the loop, as one word
    gpu_memory_bytes: Count = 0
    no_space: Word = ""  # dense owner: why its disk refuses the record of a commit; "" while commits are possible


class LeaseRequestMsg(Message, frozen=True):
    """From a worker that needs more data. The supervisor answers with LeaseGrantMsg or EvaluationGrantMsg as
    soon as it has work for the worker."""

    samples_per_s: Amount
    leases_ahead: Count32 = 1  # leases that may wait to be read: more than one where units are decoded ahead


class LeaseProgressMsg(Message, frozen=True):
    """From a worker: the batches of this lease up to position `stop` are committed, and the PS acknowledged them."""

    lease_id: Count
    stop: Count
    samples: Count  # samples trained in this lease so far
    skipped: Count  # bad rows skipped in this lease so far


class EvaluationScoresMsg(Message, frozen=True):
    """From a worker, when it has scored the range of an EvaluationGrantMsg. n: the scored samples. Frame 0: logits
    float32 [n * labels]. Frame 1: labels float32 [n * labels]. Frame 2: weights float32 [n], or empty. Frame 3: truth
    float32 [n], or empty. Frame 4: groups int64 [n * columns], for each group column of `evaluate.metrics` the id of
    the sample. Frame 5: bool [n * columns], whether it has one."""

    round: Count32
    unit: Count32
    start: Count
    stop: Count
    samples: Count
    skipped: Count


class PausedMsg(Message, frozen=True):
    """From a worker that has stopped at a batch boundary because of PauseMsg. All its pushes are acknowledged, and its
    LeaseProgressMsg was sent before."""

    cut: Count


class DrainedMsg(Message, frozen=True):
    """From a worker that has drained: it sent its LeaseProgressMsg, gives its leases back, and exits on StopMsg."""


class SnapshotCutMsg(Message, frozen=True):
    """From a PS, when it has copied its buckets for the checkpoint: training may continue."""

    cut: Count
    rows: Count
    bytes: Count


class SnapshotWrittenMsg(Message, frozen=True):
    """From a PS, when the copied buckets are written to disk and fsynced. Frame 0: the list of checkpoint BlockRecords,
    as msgpack. With `failure` the write failed: the PS has left no block on disk, and there is no frame."""

    cut: Count
    dense_version: Count
    failure: str = ""
    hint: str = ""
    is_out_of_space: bool = False


class FencedMsg(Message, frozen=True):
    """From the dense owner, as the answer to FenceMsg: it refuses further pushes of this worker incarnation, and
    `applied` is the incarnation's last committed batch."""

    worker: Count32
    incarnation: Count32
    applied: AppliedBatch


class UnsettledMsg(Message, frozen=True):
    """From a PS that has a staged push of a worker incarnation that is not a member any more. The supervisor answers
    with SettleMsg as soon as it has the incarnation's last committed batch."""

    worker: Count32
    incarnation: Count32


class SettledMsg(Message, frozen=True):
    """From a PS, as the answer to SettleMsg: it has no staged push of this worker incarnation any more."""

    worker: Count32
    incarnation: Count32


class RepinnedMsg(Message, frozen=True):
    """From a worker or a PS, as the answer to RepinMsg: it runs on these cores now."""

    cores: tuple[int, ...]


class FailureReportMsg(Message, frozen=True):
    """From any process, before it exits because of an error. error_type: the class name of the exception, from
    elastichost.errors or another one. traceback_text: for the log; for a ModelError, the traceback of the user's code.
    samples: the batch of a NonFiniteError."""

    error_type: Word
    message: str
    hint: str
    traceback_text: str
    samples: SampleRange | None = None


# --- supervisor -> process -----------------------------------------------------------------------------


class MembershipMsg(Message, frozen=True):
    """To every PS, when the members change: the worker incarnations that count now. In bounded mode the dense owner
    waits for these and refuses clock messages of others. A PS asks about staged pushes of all others (UnsettledMsg)."""

    epoch: int
    workers: tuple[tuple[int, int], ...]  # (index, incarnation)


class ShardMapUpdateMsg(Message, frozen=True):
    """To every worker and PS: the shard map with the addresses of the PS. Frames: one for each table, in the order of
    the tables: the index of the PS that owns each bucket, uint16 [buckets]. Epochs only grow; a receiver ignores an
    older one."""

    epoch: int
    servers: tuple[ServerAddress, ...]
    dense_owner: int  # index of the PS that owns the dense vector
    committed: tuple[CommittedBatch, ...] = ()  # of the pushes staged under older epochs these batches alone count
    # (table, bucket) whose rows come from another host's arena. The new owner has copied them (CopyBucketsMsg), and
    # answers ReadyMsg when they are complete.
    moved: tuple[tuple[int, int], ...] = ()
    settles: bool = False  # all former workers are dead: of the staged pushes `committed` count, the others are dropped
    # (table, bucket) whose rows no worker may use in place, because they are about to move to another host: their PS
    # has to see every change of them.
    served: tuple[tuple[int, int], ...] = ()
    # (table, bucket) whose rows were lost with their host. The new owner fills them from `checkpoint`, a directory on
    # its host, or with initial rows if that is "".
    remade: tuple[tuple[int, int], ...] = ()
    checkpoint: str = ""
    # For workers: (table, bucket, epoch) of all buckets that were remade since the run began, with the epoch. A row
    # number that was pulled before that epoch is not valid any more.
    made_anew: tuple[tuple[int, int, int], ...] = ()


class LeaseGrantMsg(Message, frozen=True):
    """To a worker: a lease, the range that it trains next."""

    lease: Lease
    shuffle_seed: int  # -1: file order


class EvaluationGrantMsg(Message, frozen=True):
    """To a worker: score this range of the test set with the present weights, and answer with EvaluationScoresMsg."""

    round: int
    unit: int
    start: int
    stop: int


class PauseMsg(Message, frozen=True):
    """To a worker, at the cut of a checkpoint: stop at the next batch boundary, and answer with PausedMsg."""

    cut: int


class ProceedMsg(Message, frozen=True):
    """To a worker: continue after the PauseMsg of this cut."""

    cut: int


class SnapshotMsg(Message, frozen=True):
    """To a PS: copy your buckets and answer with SnapshotCutMsg, then write them to the directory `path` and answer
    with SnapshotWrittenMsg."""

    cut: int
    path: str
    committed_step: int = 0  # sync mode: the staged pushes of steps up to this one belong to the cut


class RestoreMsg(Message, frozen=True):
    """To a PS, before its first shard map: fill your buckets from this checkpoint directory, and not with initial
    rows."""

    checkpoint: str


class FenceMsg(Message, frozen=True):
    """To every PS, when a worker incarnation has ended: refuse its messages from now on. The dense owner answers with
    FencedMsg."""

    worker: int
    incarnation: int


class SettleMsg(Message, frozen=True):
    """To a PS: this worker incarnation has ended, and its batches up to `sequence` are committed. Apply its staged
    pushes of these batches, drop the others, and answer with SettledMsg."""

    worker: int
    incarnation: int
    sequence: int


class RepinMsg(Message, frozen=True):
    """To a worker or a PS: run on these cores from the next batch on, and answer with RepinnedMsg. A worker uses
    `threads` threads."""

    cores: tuple[int, ...]
    threads: int


class DrainMsg(Message, frozen=True):
    """To a worker: finish the present batch, give your leases back, and answer with DrainedMsg."""


class StopMsg(Message, frozen=True):
    """To any process: exit now, with code 0."""


ControlMessage = (
    HelloMsg
    | ModelDescribedMsg
    | ReadyMsg
    | HeartbeatMsg
    | LeaseRequestMsg
    | LeaseProgressMsg
    | EvaluationScoresMsg
    | PausedMsg
    | DrainedMsg
    | SnapshotCutMsg
    | SnapshotWrittenMsg
    | FencedMsg
    | UnsettledMsg
    | SettledMsg
    | RepinnedMsg
    | BucketsMeasuredMsg
    | CopiedMsg
    | AdmittedMsg
    | ForgottenMsg
    | UnmappedMsg
    | SourceTroubleMsg
    | FailureReportMsg
    | AdmitMsg
    | MembershipMsg
    | ShardMapUpdateMsg
    | LeaseGrantMsg
    | StepsGrantMsg
    | CrewMsg
    | EvaluationGrantMsg
    | PauseMsg
    | ProceedMsg
    | SnapshotMsg
    | RestoreMsg
    | MeasureBucketsMsg
    | CopyBucketsMsg
    | ForgetBucketsMsg
    | KeepBucketsMsg
    | FenceMsg
    | SettleMsg
    | InputKnobsMsg
    | RepinMsg
    | DrainMsg
    | StopMsg
)
