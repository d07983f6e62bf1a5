"""Events about checkpoints and their mirror. Pure values."""

from __future__ import annotations

from typing import ClassVar

from elastichost.runs.events.base import Category, Durability, Event

__all__ = [
    "BestCheckpointWritten",
    "CheckpointAbandoned",
    "CheckpointFailed",
    "CheckpointMirrored",
    "CheckpointStarted",
    "CheckpointWritten",
    "MirrorFailed",
    "MirrorMissing",
    "MirrorUnfinished",
]


class CheckpointStarted(Event, frozen=True):
    """The supervisor pauses the workers for a checkpoint cut. cut: its number."""

    cut: int
    reason: str

    category: ClassVar[Category] = "decision"


class CheckpointWritten(Event, frozen=True):
    """The checkpoint is on the disk. samples: samples accounted for; stall_s: seconds for which training was paused;
    removed: number of older checkpoints that were removed."""

    path: str
    samples: int
    rows: int
    bytes: int
    seconds: float
    stall_s: float
    removed: int

    durability: ClassVar[Durability] = "at_once"


class BestCheckpointWritten(Event, frozen=True):
    """The checkpoint has the weights of the best evaluation so far, and is kept until a better one is found. figure,
    value: what was compared; samples: trained when it was measured."""

    path: str
    figure: str
    value: float
    samples: int

    durability: ClassVar[Durability] = "at_once"


class CheckpointFailed(Event, frozen=True):
    """A periodic checkpoint failed; training goes on. newest: name of the newest good checkpoint, or ""."""

    error: str
    failed_in_a_row: int
    newest: str
    retry_in_s: float

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"


class CheckpointAbandoned(Event, frozen=True):
    """A checkpoint cut was abandoned before anything was written, usually because a process was lost."""

    reason: str

    category: ClassVar[Category] = "fault"


class CheckpointMirrored(Event, frozen=True):
    """The checkpoint was copied to the mirror."""

    checkpoint: str
    mirror: str
    bytes: int


class MirrorFailed(Event, frozen=True):
    """The checkpoint could not be copied to the mirror."""

    checkpoint: str
    error: str

    category: ClassVar[Category] = "warning"
    durability: ClassVar[Durability] = "at_once"


class MirrorUnfinished(Event, frozen=True):
    """The run ended while a copy to the mirror was under way."""

    mirror: str

    category: ClassVar[Category] = "warning"


class MirrorMissing(Event, frozen=True):
    """`checkpoint.mirror` names a host that is not in this run."""

    host: str

    category: ClassVar[Category] = "warning"
