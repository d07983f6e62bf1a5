"""Where the model resides that a worker uses in place: in the arena, or in memory of its GPU while it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from elastichost.arena.recovery.device_residence import read_residence
from elastichost.errors import ModelLostError

__all__ = ["ArenaResidence", "ModelResidence"]


class ModelResidence(Protocol):
    """Puts the model where a worker uses it, and writes it back to the arena."""

    @property
    def device_bytes(self) -> int:
        """Bytes of the model in memory of the GPU."""
        ...

    def open(self) -> None:
        """Called once, before the first batch, when the model in the arena is complete."""
        ...

    def look(self, now_s: float) -> None:
        """Called wherever the worker reads its messages. Does not wait for long."""
        ...

    def write_back(self, *, for_good: bool) -> None:
        """Returns when the model in the arena is the one that was trained. Everything that was trained is committed.
        for_good: this worker trains no more."""
        ...


class ArenaResidence:
    """Implements `ModelResidence` for a model that resides in the arena. Raises ModelLostError when it does not."""

    device_bytes = 0

    def __init__(self, arena: Path) -> None:
        resident = read_residence(arena)
        if resident is not None:
            raise ModelLostError(
                f"the model was in memory of GPU {resident.device}, and no worker has this GPU any more"
            )

    def open(self) -> None:
        """Implements `ModelResidence.open`."""

    def look(self, now_s: float) -> None:
        """Implements `ModelResidence.look`."""

    def write_back(self, *, for_good: bool) -> None:
        """Implements `ModelResidence.write_back`."""
