"""What a spawned process is told; JSON over the fork server's socket, no secret in argv or environment."""

from __future__ import annotations

import msgspec

from elastichost.plan import Access, ProcessId, Role
from elastichost.wire.security.keys import AllowList, Gate, KeyPair, Pass

__all__ = ["ChildArguments"]


class ChildArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a worker, PS or probe process. Paths are absolute; the job file is RUN/job.resolved.toml."""

    role: Role
    index: int
    incarnation: int
    job_id: int
    control_address: str
    run_dir: str
    arena_directory: str  # "" for the probe: there is no arena yet
    socket_directory: str
    cores: tuple[int, ...]
    threads: int
    access: Access
    supervisor_pid: int
    gpu: int | None = None
    gpu_memory_fraction: float = 1.0
    host: int = 0  # whose arena it is; the dense vector is on host 0
    gate: str = ""  # of a PS that other machines are to reach: `tcp://10.0.0.1:*`
    keys: KeyPair | None = None  # its own, where there are several machines
    supervisor_key: str = ""  # the supervisor's public one; "": it is on this machine

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.role, self.index, self.incarnation)

    def gate_for(self, allowed: AllowList) -> Gate | None:
        """Where other machines come in; None: they do not."""
        return Gate(self.gate, self.keys, allowed) if self.gate and self.keys is not None else None

    @property
    def to_supervisor(self) -> Pass | None:
        """What it shows at the supervisor's gate; None: it needs nothing there."""
        return Pass(self.keys, self.supervisor_key) if self.keys is not None and self.supervisor_key else None
