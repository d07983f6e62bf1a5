"""Events about buckets of rows: which server owns them, hand-overs, moves between arenas, balancing. Pure values."""

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
    """Buckets are to change owners. servers: indices of those that are to own some; before: of those that do now."""

    epoch: int  # of the map there is
    before: tuple[int, ...]
    servers: tuple[int, ...]
    reason: str

    category: ClassVar[Category] = "decision"


class HandoverReverted(Event, frozen=True):
    """The owners stay as they were before the hand-over that was under way."""

    reason: str

    category: ClassVar[Category] = "decision"


class ShardMapPublished(Event, frozen=True):
    """Workers use this map from now on. owners: the incarnations, "server-0.1"; took_s: since the hand-over began."""

    epoch: int
    owners: tuple[str, ...]
    moved: int  # buckets
    took_s: float

    is_replayed: ClassVar[bool] = True


class BucketsMoving(Event, frozen=True):
    """Buckets are to be copied to arenas of other hosts while training goes on."""

    buckets: int
    reason: str

    category: ClassVar[Category] = "decision"


class BucketsMoved(Event, frozen=True):
    """Buckets are in the arenas of other hosts now. seconds: all of it; drained_s: of that, without those buckets."""

    buckets: int
    bytes: int
    seconds: float
    drained_s: float
    epoch: int

    durability: ClassVar[Durability] = "at_once"


class MoveAborted(Event, frozen=True):
    """Buckets stay in the arena where they are. full_host: the move failed since that host has no memory left."""

    buckets: int
    reason: str
    wait_s: float
    full_host: int | None = None

    category: ClassVar[Category] = "fault"


class BucketsStay(Event, frozen=True):
    """Buckets of a busy parameter server are not moved to another. cause: why."""

    cause: str
    reason: str

    category: ClassVar[Category] = "decision"


class BalancingOff(Event, frozen=True):
    """Buckets are not moved by load in this run."""

    reason: str

    category: ClassVar[Category] = "decision"
