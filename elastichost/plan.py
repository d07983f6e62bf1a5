"""What should run where: the plan a tuner proposes and the supervisor makes true."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Access", "Plan", "ProcessId", "ProcessSpec", "Role"]

Role = Literal["worker", "server", "probe"]
# How workers reach rows: all in the mapped arena, all by messages, or those of their own host in the arena.
Access = Literal["direct", "served", "mixed"]


class ProcessId(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """Which process; `incarnation` counts its incarnations from 1."""

    role: str
    index: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}.{self.incarnation}"

    @property
    def name(self) -> str:
        """The name a user sees, the same for every incarnation."""
        return f"{self.role}-{self.index}"


class ProcessSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process of a plan: the cores it is pinned to (empty: all of the job's), threads, GPU share, and the host
    whose arena it uses."""

    role: Role
    index: int
    cores: tuple[int, ...]
    threads: int
    gpu: int | None = None
    gpu_memory_fraction: float = 1.0
    host: int = 0


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that should run, and why."""

    processes: tuple[ProcessSpec, ...]
    access: Access
    reason: str

    @property
    def workers(self) -> tuple[ProcessSpec, ...]:
        return tuple(p for p in self.processes if p.role == "worker")

    @property
    def servers(self) -> tuple[ProcessSpec, ...]:
        return tuple(p for p in self.processes if p.role == "server")
