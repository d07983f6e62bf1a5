"""What a spawned process is told; JSON over the fork server's socket, no secret in argv or environment."""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.plan import ProcessId, Role

__all__ = ["ChildArguments"]


class ChildArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a worker, PS or probe process. Paths are absolute; the job file is RUN/job.resolved.toml."""

    role: Role
    index: int
    life: int
    job_id: int
    control_address: str
    run_dir: str
    arena_directory: str  # "" for the probe: there is no arena yet
    socket_directory: str
    cores: tuple[int, ...]
    threads: int
    access: Literal["direct", "served"]
    supervisor_pid: int
    gpu: int | None = None
    gpu_memory_fraction: float = 1.0
    host: int = 0  # whose arena it is; the dense vector and the workers are on host 0

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.role, self.index, self.life)
