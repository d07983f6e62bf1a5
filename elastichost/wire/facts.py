"""What messages of both conversations are made of. All arrays are little-endian and C-contiguous; the receiver checks
dtype and length before it uses them."""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = [
    "HEARTBEAT_S",
    "Amount",
    "AppliedBatch",
    "BucketMove",
    "CommittedBatch",
    "Count",
    "Count32",
    "Lease",
    "Message",
    "Sequence",
    "ServerAddress",
    "StepSample",
    "TensorEvent",
    "WorkingSet",
]

HEARTBEAT_S = 0.5

# What a message may say at all: checked when it is decoded, before anybody computes with it. No NaN is an Amount.
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Count32 = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Sequence = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # of batches and steps: the lower bits of a stamp
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True, array_like=False):
    """Base of all messages; the tag is the class name."""


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range of positions of one dataset unit that one worker may train now."""

    lease_id: int
    epoch: int
    unit: int
    start: int
    stop: int


class AppliedBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last batch of a worker incarnation whose dense update the PS applied: the commit point of a batch."""

    sequence: int  # 0: none yet
    lease_id: int
    stop: int  # position in the lease's unit up to which this incarnation's batches are applied
    samples: int  # samples trained by this incarnation so far (skipped ones not counted)
    skipped: int


class CommittedBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The batches of a worker incarnation are committed up to `sequence`."""

    worker: int
    incarnation: int
    sequence: int


class StepSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a process did since its last heartbeat; sums over the steps."""

    steps: Count = 0
    samples: Count = 0
    seconds: Amount = 0.0  # wall time covered
    wait_input_s: Amount = 0.0  # waiting for the pipeline (reader or lease)
    read_s: Amount = 0.0  # reading samples (in the prefetch thread: overlapped)
    lookup_s: Amount = 0.0  # ids to rows, pulls (in the prefetch thread: overlapped)
    compute_s: Amount = 0.0  # forward and backward
    push_s: Amount = 0.0  # rows and dense gradients
    # CPU time of the thread that trains, for both; None: not known (a GPU computes, and the thread spins meanwhile)
    training_cpu_s: Amount | None = None
    wait_peers_s: Amount = 0.0  # bounded mode
    loss_sum: float = 0.0  # sum over samples of the loss
    ids: Count = 0
    bytes_sent: Count = 0
    bytes_received: Count = 0
    requests: Count = 0  # PS: requests served
    busy_s: Amount = 0.0  # PS: time spent serving
    taken_s: Amount = 0.0  # when, by the clock that all processes of a host share; 0: not told
    cpu_s: Amount | None = None  # CPU time of an emulated process, by its costs; None: the kernel knows


class ServerAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a PS is. host: whose machine; outer: how others reach it there, "" when all are on one; key: its public
    one."""

    index: int
    incarnation: int
    address: str
    host: int = 0
    outer: str = ""
    key: str = ""


class BucketMove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bucket whose rows lie in another host's arena; `source`: the PS that has them."""

    table: int
    bucket: int
    source: ServerAddress


class TensorEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """A tensor is made, of fixed_bytes + sample_bytes * batch; or the one of this number is freed."""

    number: int
    is_made: bool
    fixed_bytes: float = 0.0
    sample_bytes: float = 0.0


class WorkingSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tensors of one training step, and of scoring one batch, as they come and go."""

    training: tuple[TensorEvent, ...]
    scoring: tuple[TensorEvent, ...]
