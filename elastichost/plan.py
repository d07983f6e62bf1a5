"""The plan: which processes are to run, with which cores and threads. The tuner proposes it, the supervisor starts
it."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Access", "Plan", "ProcessId", "ProcessSpec", "Role"]

Role = Literal["worker", "server", "probe"]
# How workers reach rows. direct: all in the mapped arena; served: all by messages; mixed: the rows of the worker's own
# host in the mapped arena, all others by messages.
Access = Literal["direct", "served", "mixed"]


class ProcessId(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True):
    """The identity of a process. `incarnation` counts the processes of the same name, from 1."""

    role: str
    index: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}.{self.incarnation}"

    @property
    def name(self) -> str:
        """The name for users, the same for every incarnation."""
        return f"{self.role}-{self.index}"


class ProcessSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One process of a plan. cores: those that it is pinned to, () for all cores of the job. gpu: index of its GPU,
    None for none. gpu_memory_fraction: share of that GPU's memory that it may use. host: it uses the arena of
    this host."""

    role: Role
    index: int
    cores: tuple[int, ...]
    threads: int
    gpu: int | None = None
    gpu_memory_fraction: float = 1.0
    host: int = 0


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All processes that are to run, and the reason for the plan."""

    processes: tuple[ProcessSpec, ...]
    access: Access
    reason: str

    @property
    def workers(self) -> tuple[ProcessSpec, ...]:
        return tuple(p for p in self.processes if p.role == "worker")

    @property
    def servers(self) -> tuple[ProcessSpec, ...]:
        return tuple(p for p in self.processes if p.role == "server")
