"""The faults of the source of training data. They need `Target.source`: when one of them is chosen, `elastichost chaos`
serves files itself, and puts a proxy before a web server or store."""

from __future__ import annotations

from dataclasses import dataclass

from elastichost.chaos.faults.process_faults import OpenFault, Target, open_fault
from elastichost.chaos.faults.source_process import FaultKind, Order

__all__ = ["SOURCE_FAULTS", "SourceFault"]


@dataclass(frozen=True, slots=True)
class SourceFault:
    """Has the source stall for `seconds`, reset every connection, refuse requests or connections, or give half of its
    bandwidth. No process may end by it, and training must go on when the source works again."""

    fault: FaultKind
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
    SourceFault("gone", 10.0, "the source of training data is gone for 10 s: nothing listens there"),
    SourceFault("slow", 5.0, "the source of training data has half of its bandwidth for 5 s"),
)
