"""What is different in a run whose computing is emulated: its processes' programs, and the host."""

from __future__ import annotations

from elastichost.config.emulate import EmulateSection
from elastichost.resources import HostInventory, memory_budget_bytes
from elastichost.supervisor.launch.launcher import Entries

__all__ = ["EMULATED", "virtual_inventory"]

# Without torch: hundreds of them are forked, and none computes.
EMULATED = Entries(
    worker="elastichost.emulation.main:worker",
    server="elastichost.emulation.main:server",
    probe="elastichost.emulation.main:probe",
    imports=("elastichost.arena.kernels", "elastichost.emulation.main"),
    calls=("elastichost.arena.kernels:warm", "elastichost.emulation.main:warm"),
)


def virtual_inventory(emulate: EmulateSection) -> HostInventory:
    """Cores and memory of all virtual hosts together, cores numbered host after host."""
    memory_bytes = memory_budget_bytes(emulate.memory_per_host, 1 << 62)
    cores = range(emulate.hosts * emulate.cores_per_host)
    return HostInventory(cores=tuple(cores), memory_bytes=emulate.hosts * memory_bytes)
