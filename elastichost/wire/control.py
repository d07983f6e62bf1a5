"""The control conversation (supervisor ROUTER, everyone else DEALER), as tagged msgspec structs. Each docstring says
who sends it to whom, and which raw frames follow it."""

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
    "StepsGrantMsg",
    "StopMsg",
    "UnmappedMsg",
    "UnsettledMsg",
]

Word = Annotated[str, msgspec.Meta(max_length=200)]

# --- process -> supervisor -----------------------------------------------------------------------------


class HelloMsg(Message, frozen=True):
    """First message of every process. PS: `address` is where its data socket is bound on its own machine."""

    role: str  # "worker" | "server" | "probe"
    index: Count32
    incarnation: Count32
    pid: Count
    address: str = ""
    outer: str = ""  # where other machines reach that socket


class ModelDescribedMsg(Message, frozen=True):
    """Probe: the model was built on the meta device. Frame: initial flat dense vector, float32 [dense.elements]."""

    model: ModelSpec
    warnings: tuple[str, ...] = ()


class ReadyMsg(Message, frozen=True):
    """PS: owns its buckets, rows initialised or restored, serving. Worker: model built, about to ask for a lease.

    `committed`, of the dense owner with served access: batches staged under older epochs that count; it commits no
    other of those any more."""

    shard_map_epoch: Count
    committed: tuple[CommittedBatch, ...] = ()


class HeartbeatMsg(Message, frozen=True):
    """From the work loop, every HEARTBEAT_S; `progress` only grows while the loop makes progress."""

    progress: Count
    sample: StepSample
    state: Word = ""  # what the loop is doing, in a word
    gpu_memory_bytes: Count = 0
    no_space: Word = ""  # PS: why no batch can be committed, "" while they can


class LeaseRequestMsg(Message, frozen=True):
    """Worker: the pipeline wants more. The answer is LeaseGrantMsg, EvaluationGrantMsg, or nothing until there is
    one."""

    samples_per_s: Amount


class LeaseProgressMsg(Message, frozen=True):
    """Worker: positions up to `stop` of this lease are applied (acknowledged by the PS)."""

    lease_id: Count
    stop: Count
    samples: Count  # trained in this lease so far
    skipped: Count  # bad rows skipped in this lease so far


class EvaluationScoresMsg(Message, frozen=True):
    """Worker: one evaluation lease is scored. Frames: logits float32 [n * labels], labels float32 [n * labels],
    weights float32 [n] or empty, truth float32 [n] or empty."""

    round: Count32
    unit: Count32
    start: Count
    stop: Count
    samples: Count
    skipped: Count


class PausedMsg(Message, frozen=True):
    """Worker: stands at a batch boundary with every push acknowledged; LeaseProgressMsg was sent before."""

    cut: Count


class DrainedMsg(Message, frozen=True):
    """Worker: gave its leases back (LeaseProgressMsg sent before), will exit on StopMsg."""


class SnapshotCutMsg(Message, frozen=True):
    """PS: its buckets are copied; training may go on."""

    cut: Count
    rows: Count
    bytes: Count


class SnapshotWrittenMsg(Message, frozen=True):
    """PS: the copied buckets are on disk and fsynced. Frame: msgpack list of checkpoint BlockRecords. With `failure`
    its disk refused, nothing of them is there, and there is no frame."""

    cut: Count
    dense_version: Count
    failure: str = ""
    hint: str = ""
    is_out_of_space: bool = False


class FencedMsg(Message, frozen=True):
    """PS that owns the dense part: later pushes of this worker incarnation are refused; this was its last applied
    batch."""

    worker: Count32
    incarnation: Count32
    applied: AppliedBatch


class UnsettledMsg(Message, frozen=True):
    """PS: a push of this worker incarnation is staged here, and the incarnation speaks no more: was its batch
    committed?"""

    worker: Count32
    incarnation: Count32


class SettledMsg(Message, frozen=True):
    """PS: nothing of this worker incarnation is staged here any more."""

    worker: Count32
    incarnation: Count32


class RepinnedMsg(Message, frozen=True):
    """Process: runs on these cores now."""

    cores: tuple[int, ...]


class FailureReportMsg(Message, frozen=True):
    """Any process, before it exits because of an error. `error_type` is a class name of elastichost.errors, or
    another exception's; `traceback_text` is for the log and, for ModelError, the user's own; `samples`: the batch that
    a NonFiniteError is about."""

    error_type: Word
    message: str
    hint: str
    traceback_text: str
    samples: SampleRange | None = None


# --- supervisor -> process -----------------------------------------------------------------------------


class MembershipMsg(Message, frozen=True):
    """PS: incarnations of the workers that count now (bounded mode's clock; the PS refuses others)."""

    epoch: int
    workers: tuple[tuple[int, int], ...]  # (index, incarnation)


class ShardMapUpdateMsg(Message, frozen=True):
    """Everyone: bucket owners and PS addresses. Frames: one uint16 array per table (owner of each bucket), in
    table order. `dense_owner` owns the dense vector. Epochs only grow; older ones are ignored."""

    epoch: int
    servers: tuple[ServerAddress, ...]
    dense_owner: int
    committed: tuple[CommittedBatch, ...] = ()  # of batches staged under older epochs these count, no others
    # (table, bucket) whose rows come from another host's arena: their new owner has them copied (CopyBucketsMsg), and
    # answers ReadyMsg when they are whole
    moved: tuple[tuple[int, int], ...] = ()
    settles: bool = False  # all workers of before are dead: of what is staged `committed` counts, the rest is dropped
    # (table, bucket) whose rows no worker may use in place: they are about to go to another host, and their PS has to
    # see every change of them
    served: tuple[tuple[int, int], ...] = ()
    # (table, bucket) whose rows are lost with their host: their new owner fills them from `checkpoint`, a directory of
    # its host, or makes their initial rows if it is ""
    remade: tuple[tuple[int, int], ...] = ()
    checkpoint: str = ""
    # Workers: (table, bucket, epoch) of all that were ever made anew, in that epoch. A row that was pulled earlier is
    # another one now, or none.
    made_anew: tuple[tuple[int, int, int], ...] = ()


class LeaseGrantMsg(Message, frozen=True):
    """Worker: train this range."""

    lease: Lease
    shuffle_seed: int  # -1: file order


class StepsGrantMsg(Message, frozen=True):
    """Worker (sync mode): the crew trains this range in steps of train.batch_size positions, from `first_step` on."""

    lease: Lease
    shuffle_seed: int  # -1: file order
    first_step: int


class CrewMsg(Message, frozen=True):
    """Worker (sync mode): who computes which micro-batch of every step that is not committed. Epochs only grow."""

    epoch: int
    workers: tuple[int, ...]  # index of the worker, for each micro-batch
    left_out: tuple[tuple[int, int], ...] = ()  # (step, micro-batch): computed by nobody, its samples are not trained


class EvaluationGrantMsg(Message, frozen=True):
    """Worker: score this range of the test set with the present weights."""

    round: int
    unit: int
    start: int
    stop: int


class PauseMsg(Message, frozen=True):
    """Worker: stop at the next batch boundary and answer PausedMsg (a checkpoint's cut)."""

    cut: int


class ProceedMsg(Message, frozen=True):
    """Worker: go on after a PauseMsg."""

    cut: int


class SnapshotMsg(Message, frozen=True):
    """PS: copy your buckets (answer SnapshotCutMsg), then write them to `path` (answer SnapshotWrittenMsg)."""

    cut: int
    path: str
    committed_step: int = 0  # sync mode: what is staged of steps up to here belongs to the cut


class RestoreMsg(Message, frozen=True):
    """PS: before ReadyMsg, fill your buckets from this checkpoint directory instead of initialising them."""

    checkpoint: str


class FenceMsg(Message, frozen=True):
    """PS: refuse this worker incarnation from now on; the dense owner answers FencedMsg."""

    worker: int
    incarnation: int


class SettleMsg(Message, frozen=True):
    """PS: this worker incarnation has ended; its batches up to `sequence` are committed. Apply what is staged of them,
    drop the rest, answer SettledMsg."""

    worker: int
    incarnation: int
    sequence: int


class RepinMsg(Message, frozen=True):
    """Everyone: run on these cores, a worker with that many threads, from the next batch on. Answer RepinnedMsg."""

    cores: tuple[int, ...]
    threads: int


class DrainMsg(Message, frozen=True):
    """Worker: finish the batch in hand, give leases back, answer DrainedMsg."""


class StopMsg(Message, frozen=True):
    """Everyone: exit with code 0, now."""


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
    | RepinMsg
    | DrainMsg
    | StopMsg
)
