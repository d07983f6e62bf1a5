"""The control conversation (supervisor ROUTER, everyone else DEALER), as tagged msgspec structs. Each docstring says
who sends it to whom, and which raw frames follow it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from elastichost.errors import SampleRange
from elastichost.specs import ModelSpec
from elastichost.wire.control_hosts import (
    Admit,
    Admitted,
    BucketsMeasured,
    Copied,
    CopyBuckets,
    ForgetBuckets,
    Forgotten,
    KeepBuckets,
    MeasureBuckets,
    Unmapped,
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
    "Admit",
    "Admitted",
    "BucketsMeasured",
    "ControlMessage",
    "Copied",
    "CopyBuckets",
    "Crew",
    "Drain",
    "Drained",
    "EvaluationGrant",
    "EvaluationScores",
    "FailureReport",
    "Fence",
    "Fenced",
    "ForgetBuckets",
    "Forgotten",
    "Heartbeat",
    "Hello",
    "KeepBuckets",
    "LeaseGrant",
    "LeaseProgress",
    "LeaseRequest",
    "MeasureBuckets",
    "Membership",
    "ModelDescribed",
    "Pause",
    "Paused",
    "Proceed",
    "Ready",
    "Repin",
    "Repinned",
    "Restore",
    "Settle",
    "Settled",
    "ShardMapUpdate",
    "Snapshot",
    "SnapshotCut",
    "SnapshotWritten",
    "StepsGrant",
    "Stop",
    "Unmapped",
    "Unsettled",
]

Word = Annotated[str, msgspec.Meta(max_length=200)]

# --- process -> supervisor -----------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """First message of every process. PS: `address` is where its data socket is bound on its own machine."""

    role: str  # "worker" | "server" | "probe"
    index: Count32
    life: Count32
    pid: Count
    address: str = ""
    outer: str = ""  # where other machines reach that socket


class ModelDescribed(Message, frozen=True):
    """Probe: the model was built on the meta device. Frame: initial flat dense vector, float32 [dense.elements]."""

    model: ModelSpec
    warnings: tuple[str, ...] = ()


class Ready(Message, frozen=True):
    """PS: owns its buckets, rows initialised or restored, serving. Worker: model built, about to ask for a lease.

    `committed`, of the dense owner with served access: batches staged under older epochs that count; it commits no
    other of those any more."""

    shard_map_epoch: Count
    committed: tuple[CommittedBatch, ...] = ()


class Heartbeat(Message, frozen=True):
    """From the work loop, every HEARTBEAT_S; `progress` only grows while the loop makes progress."""

    progress: Count
    sample: StepSample
    state: Word = ""  # what the loop is doing, in a word
    gpu_memory_bytes: Count = 0
    no_space: Word = ""  # PS: why no batch can be committed, "" while they can


class LeaseRequest(Message, frozen=True):
    """Worker: the pipeline wants more. The answer is LeaseGrant, EvaluationGrant, or nothing until there is one."""

    samples_per_s: Amount


class LeaseProgress(Message, frozen=True):
    """Worker: positions up to `stop` of this lease are applied (acknowledged by the PS)."""

    lease_id: Count
    stop: Count
    samples: Count  # trained in this lease so far
    skipped: Count  # bad rows skipped in this lease so far


class EvaluationScores(Message, frozen=True):
    """Worker: one evaluation lease is scored. Frames: logits float32 [n * labels], labels float32 [n * labels],
    weights float32 [n] or empty, truth float32 [n] or empty."""

    round: Count32
    unit: Count32
    start: Count
    stop: Count
    samples: Count
    skipped: Count


class Paused(Message, frozen=True):
    """Worker: stands at a batch boundary with every push acknowledged; LeaseProgress was sent before."""

    cut: Count


class Drained(Message, frozen=True):
    """Worker: gave its leases back (LeaseProgress sent before), will exit on Stop."""


class SnapshotCut(Message, frozen=True):
    """PS: its buckets are copied; training may go on."""

    cut: Count
    rows: Count
    bytes: Count


class SnapshotWritten(Message, frozen=True):
    """PS: the copied buckets are on disk and fsynced. Frame: msgpack list of checkpoint BlockRecords. With `failure`
    its disk refused, nothing of them is there, and there is no frame."""

    cut: Count
    dense_version: Count
    failure: str = ""
    hint: str = ""
    is_out_of_space: bool = False


class Fenced(Message, frozen=True):
    """PS that owns the dense part: later pushes of this worker life are refused; this was its last applied batch."""

    worker: Count32
    life: Count32
    applied: AppliedBatch


class Unsettled(Message, frozen=True):
    """PS: a push of this worker life is staged here, and the life speaks no more: was its batch committed?"""

    worker: Count32
    life: Count32


class Settled(Message, frozen=True):
    """PS: nothing of this worker life is staged here any more."""

    worker: Count32
    life: Count32


class Repinned(Message, frozen=True):
    """Process: runs on these cores now."""

    cores: tuple[int, ...]


class FailureReport(Message, frozen=True):
    """Any process, before it exits because of an error. `error_type` is a class name of elastichost.errors, or
    another exception's; `traceback_text` is for the log and, for ModelError, the user's own; `samples`: the batch that
    a NonFiniteError is about."""

    error_type: Word
    message: str
    hint: str
    traceback_text: str
    samples: SampleRange | None = None


# --- supervisor -> process -----------------------------------------------------------------------------


class Membership(Message, frozen=True):
    """PS: lives of the workers that count now (bounded mode's clock; the PS refuses others)."""

    epoch: int
    workers: tuple[tuple[int, int], ...]  # (index, life)


class ShardMapUpdate(Message, frozen=True):
    """Everyone: bucket owners and PS addresses. Frames: one uint16 array per table (owner of each bucket), in
    table order. `dense_owner` owns the dense vector. Epochs only grow; older ones are ignored."""

    epoch: int
    servers: tuple[ServerAddress, ...]
    dense_owner: int
    committed: tuple[CommittedBatch, ...] = ()  # of batches staged under older epochs these count, no others
    # (table, bucket) whose rows come from another host's arena: their new owner has them copied (CopyBuckets), and
    # answers Ready when they are whole
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


class LeaseGrant(Message, frozen=True):
    """Worker: train this range."""

    lease: Lease
    shuffle_seed: int  # -1: file order


class StepsGrant(Message, frozen=True):
    """Worker (sync mode): the crew trains this range in steps of train.batch_size positions, from `first_step` on."""

    lease: Lease
    shuffle_seed: int  # -1: file order
    first_step: int


class Crew(Message, frozen=True):
    """Worker (sync mode): who computes which micro-batch of every step that is not committed. Epochs only grow."""

    epoch: int
    workers: tuple[int, ...]  # index of the worker, for each micro-batch
    left_out: tuple[tuple[int, int], ...] = ()  # (step, micro-batch): computed by nobody, its samples are not trained


class EvaluationGrant(Message, frozen=True):
    """Worker: score this range of the test set with the present weights."""

    round: int
    unit: int
    start: int
    stop: int


class Pause(Message, frozen=True):
    """Worker: stop at the next batch boundary and answer Paused (a checkpoint's cut)."""

    cut: int


class Proceed(Message, frozen=True):
    """Worker: go on after a Pause."""

    cut: int


class Snapshot(Message, frozen=True):
    """PS: copy your buckets (answer SnapshotCut), then write them to `path` (answer SnapshotWritten)."""

    cut: int
    path: str
    committed_step: int = 0  # sync mode: what is staged of steps up to here belongs to the cut


class Restore(Message, frozen=True):
    """PS: before Ready, fill your buckets from this checkpoint directory instead of initialising them."""

    checkpoint: str


class Fence(Message, frozen=True):
    """PS: refuse this worker life from now on; the dense owner answers Fenced."""

    worker: int
    life: int


class Settle(Message, frozen=True):
    """PS: this worker life has ended; its batches up to `sequence` are committed. Apply what is staged of them, drop
    the rest, answer Settled."""

    worker: int
    life: int
    sequence: int


class Repin(Message, frozen=True):
    """Everyone: run on these cores, a worker with that many threads, from the next batch on. Answer Repinned."""

    cores: tuple[int, ...]
    threads: int


class Drain(Message, frozen=True):
    """Worker: finish the batch in hand, give leases back, answer Drained."""


class Stop(Message, frozen=True):
    """Everyone: exit with code 0, now."""


ControlMessage = (
    Hello
    | ModelDescribed
    | Ready
    | Heartbeat
    | LeaseRequest
    | LeaseProgress
    | EvaluationScores
    | Paused
    | Drained
    | SnapshotCut
    | SnapshotWritten
    | Fenced
    | Unsettled
    | Settled
    | Repinned
    | BucketsMeasured
    | Copied
    | Admitted
    | Forgotten
    | Unmapped
    | FailureReport
    | Admit
    | Membership
    | ShardMapUpdate
    | LeaseGrant
    | StepsGrant
    | Crew
    | EvaluationGrant
    | Pause
    | Proceed
    | Snapshot
    | Restore
    | MeasureBuckets
    | CopyBuckets
    | ForgetBuckets
    | KeepBuckets
    | Fence
    | Settle
    | Repin
    | Drain
    | Stop
)
