"""Events about buckets of rows: owners, hand-overs, moves between arenas, load balancing. Pure values."""

from __future__ import annotations

from typing import ClassVar

from elastichost.runs.events.base import Category, Durability, Event

__all__ = [
    "BalancingOff",
    "BucketsMoved",
    "BucketsMoving",
    "BucketsStay",
    "HandoverReverted",
    "HandoverStarted",
    "MoveAborted",
    "ShardMapPublished",
]


class HandoverStarted(Event, frozen=True):
    """A hand-over of buckets started. before: indices of the parameter servers that own buckets now; servers: indices
    of those that will own buckets."""

    epoch: int  # of the present shard map
    before: tuple[int, ...]
    servers: tuple[int, ...]
    reason: str

    category: ClassVar[Category] = "decision"


class HandoverReverted(Event, frozen=True):
    """A hand-over was called back: the owners are the same as before it."""

    reason: str

    category: ClassVar[Category] = "decision"


class ShardMapPublished(Event, frozen=True):
    """Workers use this shard map from now on. owners: incarnations such as "server-0.1"; took_s: seconds since the
    hand-over started."""

    epoch: int
    owners: tuple[str, ...]
    moved: int  # number of buckets with a new owner
    took_s: float

    is_replayed: ClassVar[bool] = True


class BucketsMoving(Event, frozen=True):
    """Buckets are being copied to arenas of other hosts while training goes on."""

    buckets: int
    reason: str

    category: ClassVar[Category] = "decision"


class BucketsMoved(Event, frozen=True):
    """Buckets moved to the arenas of other hosts. seconds: duration of the move; drained_s: duration of its last part,
    the hand-over of these buckets."""

    buckets: int
    bytes: int
    seconds: float
    drained_s: float
    epoch: int

    durability: ClassVar[Durability] = "at_once"


class MoveAborted(Event, frozen=True):
    """A move was aborted, and the buckets stay in their arenas. wait_s: seconds until the next attempt. full_host: the
    move failed because this host has no free memory."""

    buckets: int
    reason: str
    wait_s: float
    full_host: int | None = None

    category: ClassVar[Category] = "fault"


class BucketsStay(Event, frozen=True):
    """Buckets of a busy parameter server are not moved to another one. cause: a short name of the reason."""

    cause: str
    reason: str

    category: ClassVar[Category] = "decision"


class BalancingOff(Event, frozen=True):
    """Load balancing of buckets is off in this run."""

    reason: str

    category: ClassVar[Category] = "decision"
