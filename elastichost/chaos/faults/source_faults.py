"""The faults of the source of training data. They need `Target.source`: `elastichost chaos` serves the data itself,
from a process of its own, when one of them is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elastichost.chaos.faults.process_faults import OpenFault, Target, open_fault
from elastichost.chaos.faults.source_server import Order

__all__ = ["SOURCE_FAULTS", "SourceFault"]


@dataclass(frozen=True, slots=True)
class SourceFault:
    """Has the source stall for `seconds`, reset every connection, refuse requests, or give half of its bandwidth. No
    process may end by it, and training must go on when the source works again."""

    fault: Literal["stall", "reset", "slow", "refuse"]
    seconds: float
    meaning: str
    weight: float = 0.0  # it is injected only where it is chosen

    @property
    def name(self) -> str:
        return f"{self.fault}-source"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        """See `Fault.strike`."""
        if target.source is None:
            return None
        struck = open_fault(self, target, "source", "source", 0)
        target.source.order(Order(self.fault, self.seconds, 0.5))
        struck.released_s = struck.struck_s + (0.0 if self.fault == "slow" else self.seconds)
        return struck


SOURCE_FAULTS = (
    SourceFault("stall", 4.0, "the source of training data gives no byte for 4 s"),
    SourceFault("reset", 0.0, "the source of training data resets all connections"),
    SourceFault("refuse", 2.0, "the source of training data answers requests with 503 for 2 s"),
    SourceFault("slow", 5.0, "the source of training data has half of its bandwidth for 5 s"),
)
