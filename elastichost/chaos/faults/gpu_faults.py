"""The faults of a run with its model in memory of a GPU."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from elastichost.chaos.faults.process_faults import Fault, OpenFault, Target, open_fault

__all__ = ["GPU_FAULTS", "KillHolder"]


@dataclass(frozen=True, slots=True)
class KillHolder:
    """Kills the process that keeps the GPU's memory (`gpu.memory.memory_holder`). The worker starts another one."""

    weight: float
    name: str = "kill-memory-holder"
    meaning: str = "kill -9 of the process that keeps the GPU's memory with the model"

    def strike(self, target: Target, draw: int) -> OpenFault | None:
        """Implements `Fault.strike`."""
        pid = target.memory_holder()
        if pid is None:
            return None
        struck = open_fault(self, target, "memory holder", "memory holder", 1)
        struck.command = lambda: 0 if target.memory_holder() not in (None, pid) else None
        return struck if target.hit(pid, signal.SIGKILL) else None


GPU_FAULTS: tuple[Fault, ...] = (KillHolder(1),)
