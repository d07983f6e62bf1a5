"""The entry points of processes and the host inventory of a run in which computing is emulated."""

from __future__ import annotations

from elastichost.config.sections.emulate import EmulateSection
from elastichost.resources import HostInventory, memory_budget_bytes
from elastichost.supervisor.launch.launcher import Entries

__all__ = ["EMULATED", "virtual_inventory"]

# The fork server does not import torch, because emulated processes compute nothing and hundreds of them are forked.
EMULATED = Entries(
    worker="elastichost.emulation.main:worker",
    server="elastichost.emulation.main:server",
    probe="elastichost.emulation.main:probe",
    imports=("elastichost.arena.kernels", "elastichost.emulation.main"),
    calls=("elastichost.arena.kernels:warm", "elastichost.emulation.main:warm"),
)


def virtual_inventory(emulate: EmulateSection) -> HostInventory:
    """Cores and memory (bytes) of all virtual hosts together. Cores are numbered host after host."""
    memory_bytes = memory_budget_bytes(emulate.memory_per_host, 1 << 62)
    cores = range(emulate.hosts * emulate.cores_per_host)
    return HostInventory(cores=tuple(cores), memory_bytes=emulate.hosts * memory_bytes)
