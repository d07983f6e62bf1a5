"""How a dispatcher is to work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elastichost.tuner.colocation.policies import Settings

__all__ = ["HostOptions"]


@dataclass(frozen=True, slots=True)
class HostOptions:
    """directory: of the host; runs_under: the folder in which `runs/` is. memory_bytes: for all jobs together.
    ends_when_empty: a batch, not a host that waits for jobs; keeps_queue: jobs that are not over are for the next
    dispatcher in this directory. keeps_sizes: jobs run in the size that they would choose alone."""

    directory: Path
    runs_under: Path
    memory_bytes: int
    settings: Settings
    ends_when_empty: bool = False
    keeps_queue: bool = False
    keeps_sizes: bool = False
