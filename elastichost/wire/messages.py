"""Every message between processes, as tagged msgspec structs. Bulk arrays travel as raw frames beside them.

Two conversations: **control** (supervisor ROUTER, everyone else DEALER) and **data** (PS ROUTER, workers
DEALER). Each struct's docstring says who sends it to whom, and which raw frames follow it. All arrays are
little-endian and C-contiguous; the receiver checks dtype and length before it uses them.
"""

from __future__ import annotations

import msgspec

from elastichost.specs import ModelSpec

__all__ = [
    "HEARTBEAT_S",
    "AppliedBatch",
    "ClockAdvanced",
    "ClockReached",
    "ControlMessage",
    "DataMessage",
    "DenseFetch",
    "DensePush",
    "DensePushed",
    "Drain",
    "Drained",
    "EvaluationGrant",
    "EvaluationScores",
    "FailureReport",
    "Fence",
    "Fenced",
    "Heartbeat",
    "Hello",
    "Lease",
    "LeaseGrant",
    "LeaseProgress",
    "LeaseRequest",
    "Membership",
    "ModelDescribed",
    "Pause",
    "Paused",
    "Proceed",
    "Pull",
    "Pulled",
    "Push",
    "Pushed",
    "Ready",
    "Restore",
    "Retry",
    "ServerAddress",
    "ShardMapUpdate",
    "Snapshot",
    "SnapshotCut",
    "SnapshotWritten",
    "StepSample",
    "Stop",
]


HEARTBEAT_S = 0.5


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, array_like=False):
    """Base of all messages; the tag is the class name."""


# --- facts that several messages carry -----------------------------------------------------------------


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range of positions of one dataset unit that one worker may train now."""

    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int


class AppliedBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last batch of a worker life whose dense update the PS applied: the commit point of a batch."""

    sequence: int  # 0: none yet
    lease_id: int
    stop: int  # position in the lease's unit up to which this life's batches are applied
    samples: int  # samples trained by this life so far (skipped ones not counted)
    skipped: int


class StepSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a process did since its last heartbeat; sums over the steps."""

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0  # wall time covered
    wait_input_s: float = 0.0  # waiting for the pipeline (reader or lease)
    lookup_s: float = 0.0  # ids to rows, pulls (in the prefetch thread: overlapped)
    compute_s: float = 0.0  # forward and backward
    push_s: float = 0.0  # rows and dense gradients
    wait_peers_s: float = 0.0  # bounded mode
    loss_sum: float = 0.0  # sum over samples of the loss
    ids: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    requests: int = 0  # PS: requests served
    busy_s: float = 0.0  # PS: time spent serving


class ServerAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: int
    life: int
    address: str


# --- control: process -> supervisor --------------------------------------------------------------------


class Hello(Message, frozen=True):
    """First message of every process. PS: `address` is where its data socket is bound."""

    role: str  # "worker" | "server" | "probe"
    index: int
    life: int
    pid: int
    address: str = ""


class ModelDescribed(Message, frozen=True):
    """Probe: the model was built on the meta device. Frame: initial flat dense vector, float32 [dense.elements]."""

    model: ModelSpec
    warnings: tuple[str, ...] = ()


class Ready(Message, frozen=True):
    """PS: owns its buckets, rows initialised or restored, serving. Worker: model built, about to ask for a lease."""

    shard_map_epoch: int


class Heartbeat(Message, frozen=True):
    """From the work loop, every HEARTBEAT_S; `progress` only grows while the loop makes progress."""

    progress: int
    sample: StepSample
    state: str = ""  # what the loop is doing, in a word
    gpu_memory_bytes: int = 0


class LeaseRequest(Message, frozen=True):
    """Worker: the pipeline wants more. The answer is LeaseGrant, EvaluationGrant, or nothing until there is one."""

    samples_per_s: float


class LeaseProgress(Message, frozen=True):
    """Worker: positions up to `stop` of this lease are applied (acknowledged by the PS)."""

    lease_id: int
    stop: int
    samples: int  # trained in this lease so far
    skipped: int  # bad rows skipped in this lease so far


class EvaluationScores(Message, frozen=True):
    """Worker: one evaluation lease is scored. Frames: logits float32 [n * labels], labels float32 [n * labels],
    weights float32 [n] or empty, truth float32 [n] or empty."""

    round: int
    unit: int
    start: int
    stop: int
    samples: int
    skipped: int


class Paused(Message, frozen=True):
    """Worker: stands at a batch boundary with every push acknowledged; LeaseProgress was sent before."""

    cut: int


class Drained(Message, frozen=True):
    """Worker: gave its leases back (LeaseProgress sent before), will exit on Stop."""


class SnapshotCut(Message, frozen=True):
    """PS: its buckets are copied; training may go on."""

    cut: int
    rows: int
    bytes: int


class SnapshotWritten(Message, frozen=True):
    """PS: the copied buckets are on disk and fsynced. Frame: msgpack list of checkpoint BlockRecords."""

    cut: int
    dense_version: int


class Fenced(Message, frozen=True):
    """PS that owns the dense part: later pushes of this worker life are refused; this was its last applied batch.
    `torn` is 1 when rows may hold a part of a batch that was never committed."""

    worker: int
    life: int
    applied: AppliedBatch
    torn: int


class FailureReport(Message, frozen=True):
    """Any process, before it exits because of an error. `error_type` is a class name of elastichost.errors, or
    another exception's; `traceback_text` is for the log and, for ModelError, the user's own."""

    error_type: str
    message: str
    hint: str
    traceback_text: str


# --- control: supervisor -> process --------------------------------------------------------------------


class Membership(Message, frozen=True):
    """Everyone: lives of the workers that count now (bounded mode's clock; the PS refuses others)."""

    epoch: int
    workers: tuple[tuple[int, int], ...]  # (index, life)


class ShardMapUpdate(Message, frozen=True):
    """Everyone: bucket owners and PS addresses. Frames: one uint16 array per table (owner of each bucket), in
    table order. `dense_owner` owns the dense vector. Epochs only grow; older ones are ignored."""

    epoch: int
    servers: tuple[ServerAddress, ...]
    dense_owner: int


class LeaseGrant(Message, frozen=True):
    """Worker: train this range."""

    lease: Lease
    shuffle_seed: int  # -1: file order


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


class Restore(Message, frozen=True):
    """PS: before Ready, fill your buckets from this checkpoint directory instead of initialising them."""

    checkpoint: str


class Fence(Message, frozen=True):
    """PS: refuse this worker life from now on; the dense owner answers Fenced."""

    worker: int
    life: int


class Drain(Message, frozen=True):
    """Worker: finish the batch in hand, give leases back, answer Drained."""


class Stop(Message, frozen=True):
    """Everyone: exit with code 0, now."""


# --- data: worker -> PS --------------------------------------------------------------------------------


class Pull(Message, frozen=True):
    """Worker -> PS: keys to rows, and with `weights` also their weights (served access).

    Frame 0: keys int64, table after table (counts[t] keys of table t); unique within a table; for fixed tables the key
    is the row. With `create`, dynamic tables make rows for new ids (subject to admission).
    """

    request: int
    shard_map_epoch: int
    create: bool
    weights: bool
    counts: tuple[int, ...]  # one per table of the model
    clock: int = 0  # samples trained so far, for eviction by age


class Push(Message, frozen=True):
    """Worker -> PS: gradients of unique rows (served access).

    Frame 0: rows int64, table after table (counts[t] rows of table t), as Pulled gave them (rows >= 0). Frame 1:
    gradients float32, summed over the batch, laid out as the weights of Pulled.
    """

    request: int
    sequence: int  # the worker's batch; a PS applies a (worker, life, sequence) once
    shard_map_epoch: int
    counts: tuple[int, ...]  # one per table of the model
    learning_rate_scale: float = 1.0


class DensePush(Message, frozen=True):
    """Worker -> dense owner: gradient of one batch; its application commits the batch.

    Frame 0 when `mailbox` is -1: float32 [dense.elements] (gradients, then buffer values); otherwise the vector
    lies in that half (0 or 1) of the worker's mailbox in the arena, and there is no frame.
    """

    request: int
    sequence: int
    mailbox: int
    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int
    samples: int
    skipped: int
    want_parameters: bool  # answer with the parameters (served access)
    learning_rate_scale: float = 1.0


class DenseFetch(Message, frozen=True):
    """Worker -> dense owner: the present dense vector, please (served access; at start and before evaluation)."""

    request: int


class ClockAdvanced(Message, frozen=True):
    """Worker -> dense owner (bounded mode): this life has finished `batch` batches; answer ClockReached when every
    member has finished `batch - staleness`. `batch` -1: idle, do not wait for me (answered at once)."""

    request: int
    batch: int
    staleness: int


# --- data: PS -> worker --------------------------------------------------------------------------------


class Pulled(Message, frozen=True):
    """Frame 0: rows int64, one for each key (-1: no row: not admitted, or unknown without `create`). Frame 1, when
    weights were asked for: float32, flat; embedding after embedding, in the model's order, [rows of its table,
    padded_dim], zeros where the row is -1. Rows kept as bfloat16 are widened."""

    request: int


class Pushed(Message, frozen=True):
    """The rows' update is applied (or was applied before: `duplicate`)."""

    request: int
    duplicate: bool = False


class DensePushed(Message, frozen=True):
    """The batch is committed. Frame 0 if asked for: float32 [dense.elements], the new parameters and buffers."""

    request: int
    sequence: int
    version: int
    samples_applied: int  # by all workers, since the job began: the learning rate schedule's clock
    duplicate: bool = False


class ClockReached(Message, frozen=True):
    """Answer to ClockAdvanced, sent when it is true."""

    request: int
    slowest: int


class Retry(Message, frozen=True):
    """The PS cannot serve this request: stale shard map, bucket being moved, or fenced (`final`)."""

    request: int
    reason: str
    shard_map_epoch: int
    final: bool = False


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
    | FailureReport
    | Membership
    | ShardMapUpdate
    | LeaseGrant
    | EvaluationGrant
    | Pause
    | Proceed
    | Snapshot
    | Restore
    | Fence
    | Drain
    | Stop
)
DataMessage = (
    Pull | Push | DensePush | DenseFetch | ClockAdvanced | Pulled | Pushed | DensePushed | ClockReached | Retry
)
