"""Structs and number ranges that the messages of both conversations consist of.

All arrays in frames are little-endian and C-contiguous. The receiver checks dtype and length before it uses them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from elastichost.specs import Precision

__all__ = [
    "HEARTBEAT_S",
    "MOST_CONNECTIONS",
    "WAITS_FOR_SOURCE",
    "Amount",
    "AppliedBatch",
    "BucketMove",
    "Cache",
    "CommittedBatch",
    "Count",
    "Count32",
    "InputKnobs",
    "Lease",
    "Message",
    "Sequence",
    "ServerAddress",
    "Stage",
    "StageSample",
    "StepSample",
    "StepTime",
    "TensorEvent",
    "WorkingSet",
]

HEARTBEAT_S = 0.5
MOST_CONNECTIONS = 32  # of one worker
WAITS_FOR_SOURCE = "waiting"  # state in the heartbeat of a worker that cannot go on before its source answers

# Ranges of numbers in messages. They are checked when a message is decoded. NaN is not a valid Amount.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Count32 = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Sequence = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # number of a batch or step; 40 bits, as in a stamp
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]

# The stages of a worker's input. source: the connections to the source. decode: bytes become batches of samples.
# prepare: ids become rows. train: the training thread, which takes the batches.
Stage = Literal["source", "decode", "prepare", "train"]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, array_like=False):
    """Base class of all messages. The tag of a message is its class name."""


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range of positions of one dataset unit that one worker may train now."""

    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int


class AppliedBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last committed batch of a worker incarnation: the dense owner applied its dense gradient."""

    sequence: int  # 0: no batch is committed yet
    lease_id: int
    stop: int  # position in the lease's unit up to which the incarnation's batches are committed
    samples: int  # samples that this incarnation has trained so far, without skipped ones
    skipped: int  # samples that this incarnation has skipped so far


class CommittedBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The batches of a worker incarnation are committed up to `sequence`."""

    worker: int
    incarnation: int
    sequence: int


Cache = Literal["none", "disk", "memory"]


class InputKnobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The knobs of the reading pipeline of one worker. They can be changed while it runs.

    connections: ranges that are requested from the source at the same time. decode_threads: units that are decoded
    ahead at the same time, as far as their bytes fit. prefetch_batches: batches that may wait to be prepared.
    prefetch_bytes: bound of the bytes of units and batches that are held ahead of those in use; 0: none are.
    range_bytes: size of one request to the source. cache: what was read is kept as it was fetched, on the disk, or as
    it was decoded, in memory that the workers share."""

    connections: int = 1
    decode_threads: int = 1
    prefetch_batches: int = 0
    prefetch_bytes: int = 0
    range_bytes: int = 1 << 20
    cache: Cache = "none"


class StageSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one stage of a worker's input did since the last heartbeat, summed over its threads or connections.

    CPU and waiting are counted strictly apart. A second of a stage is in at most one of these sums: the thread used a
    core (`cpu_s`), it waited for the source (`source_s`), for room in a full queue (`full_s`), or for something in an
    empty one (`empty_s`). The rest of its time, such as waiting for a disk, a core or the interpreter, is `other_s`.

    first_byte_s: the part of `source_s` until the first bytes of the requests. items: requests, units or batches.
    p50_s, p90_s, p99_s: quantiles of the time of one item. occupancy: share of the stage's threads, connections or
    places that were in use, 0 to 1. unit_bytes: what the largest unit so far was charged with, or would be, if it was
    decoded ahead."""

    stage: Stage
    cpu_s: Amount = 0.0
    source_s: Amount = 0.0
    full_s: Amount = 0.0
    empty_s: Amount = 0.0
    other_s: Amount = 0.0
    first_byte_s: Amount = 0.0
    bytes: Count = 0
    items: Count = 0
    p50_s: Amount = 0.0
    p90_s: Amount = 0.0
    p99_s: Amount = 0.0
    occupancy: Amount = 0.0
    unit_bytes: Count = 0


class StepSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a process did since its last heartbeat, summed over its batches."""

    steps: Count = 0
    samples: Count = 0
    seconds: Amount = 0.0  # wall time that the sample covers
    wait_input_s: Amount = 0.0  # waiting for input (reader or lease)
    read_s: Amount = 0.0  # reading samples, in the prefetch thread: overlaps with training
    lookup_s: Amount = 0.0  # looking ids up and pulling rows, in the prefetch thread: overlaps with training
    compute_s: Amount = 0.0  # forward and backward pass
    push_s: Amount = 0.0  # pushing rows and dense gradients
    # CPU time of the training thread in `compute_s` and `push_s`. None: not known, because a GPU computes and the
    # thread spins meanwhile.
    training_cpu_s: Amount | None = None
    wait_peers_s: Amount = 0.0  # bounded mode: waiting for slower workers
    loss_sum: float = 0.0  # sum of the loss over the samples
    ids: Count = 0
    bytes_sent: Count = 0
    bytes_received: Count = 0
    requests: Count = 0  # PS: requests served
    busy_s: Amount = 0.0  # PS: time spent serving
    taken_s: Amount = 0.0  # when the sample was taken, by the clock that all processes of a host share; 0: not given
    cpu_s: Amount | None = None  # CPU time of an emulated process, from its costs; None: measured by the kernel
    stages: tuple[StageSample, ...] = ()  # the stages of a worker's input


class ServerAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The addresses of a PS. address: its socket on its own host. outer: its gate for other hosts, "" if all processes
    are on one host. key: its public key."""

    index: int
    incarnation: int
    address: str
    host: int = 0
    outer: str = ""
    key: str = ""


class BucketMove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bucket to copy from another host's arena. source: the PS that has its rows."""

    table: int
    bucket: int
    source: ServerAddress


class TensorEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A tensor is made or freed. number: identifies the tensor. Its size is fixed_bytes + sample_bytes * batch size."""

    number: int
    is_made: bool
    fixed_bytes: float = 0.0
    sample_bytes: float = 0.0


class StepTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The seconds of one training step of a model's dense part, on one core, with a batch of `samples`."""

    precision: Precision
    samples: int
    seconds: float


class WorkingSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tensors that are made and freed in one training step, and while one batch is scored, in order of time."""

    training: tuple[TensorEvent, ...]
    scoring: tuple[TensorEvent, ...]
