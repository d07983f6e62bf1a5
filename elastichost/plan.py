"""The plan: which processes are to run, with which cores and threads. The tuner proposes it, the supervisor starts
it."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["MOST_READERS", "Access", "Plan", "ProcessId", "ProcessSpec", "Role", "reader_index", "worker_of_reader"]

Role = Literal["worker", "server", "probe", "reader"]
MOST_READERS = 4  # of a worker: the ledger lets a worker hold five leases, and each reader reads one at a time
_READERS_APART = 100  # reader-203 is number 3 of worker-2
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


def reader_index(worker: int, number: int) -> int:
    """The index of a worker's reader number `number` (from 0)."""
    return _READERS_APART * worker + number


def worker_of_reader(index: int) -> int:
    """The index of the worker that this reader belongs to."""
    return index // _READERS_APART
