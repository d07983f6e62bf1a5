"""What a worker and its reader send to each other: msgpack over a SEQPACKET socket, one message a packet."""

from __future__ import annotations

import msgspec

from elastichost.wire.control_work import SourceTroubleMsg
from elastichost.wire.facts import InputKnobs, StageSample

__all__ = [
    "MAX_PACKET_BYTES",
    "FromReader",
    "FromWorker",
    "OrderMsg",
    "PublishedMsg",
    "RingMsg",
    "RoomMsg",
    "StagesMsg",
    "TuneMsg",
    "WithdrawMsg",
]

MAX_PACKET_BYTES = 64 * 1024


class _ReaderPacket(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class OrderMsg(_ReaderPacket, frozen=True):
    """Read positions [start, stop) of a unit, behind all orders before, and publish the batches. shuffle_seed: None: in
    file order."""

    round: int
    number: int
    unit: int
    start: int
    stop: int
    batch_size: int
    shuffle_seed: int | None
    min_samples: int


class WithdrawMsg(_ReaderPacket, frozen=True):
    """Drop all orders of the rounds before this one."""

    round: int


class TuneMsg(_ReaderPacket, frozen=True):
    """Read with these knobs from now on. cache_bytes: see `InputKnobsMsg`."""

    knobs: InputKnobs
    cache_bytes: int


class RoomMsg(_ReaderPacket, frozen=True):
    """The worker has taken a record. It may be left out while other packets wait: it says nothing that the ring's words
    do not say."""


class RingMsg(_ReaderPacket, frozen=True):
    """The reader has a new ring; the packet carries the descriptor of its memory. The reader publishes there once it
    has published a record of kind `moved` in the ring before."""

    places: int
    place_bytes: int


class PublishedMsg(_ReaderPacket, frozen=True):
    """The reader has published a record. It may be left out, as RoomMsg."""


class StagesMsg(_ReaderPacket, frozen=True):
    """What the stages of the reader did since the last message, and troubles of its source. Left out while packets
    wait; then the next one has the sums."""

    stages: tuple[StageSample, ...]
    troubles: tuple[SourceTroubleMsg, ...] = ()


FromWorker = OrderMsg | WithdrawMsg | TuneMsg | RoomMsg
FromReader = RingMsg | PublishedMsg | StagesMsg
