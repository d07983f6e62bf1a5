"""The arguments of a spawned process. They are sent as JSON over the fork server's socket, so that no secret appears in
argv or in the environment."""

from __future__ import annotations

import msgspec

from elastichost.plan import Access, ProcessId, Role
from elastichost.wire.security.keys import AllowList, Gate, KeyPair, Pass

__all__ = ["ChildArguments"]


class ChildArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a worker, PS, reader or probe process. Paths are absolute. The job file is RUN/job.resolved.toml."""

    role: Role
    index: int
    incarnation: int
    job_id: int
    control_address: str
    run_dir: str
    arena_directory: str  # "" for the probe, because the arena does not exist yet
    socket_directory: str
    cores: tuple[int, ...]
    threads: int
    access: Access
    supervisor_pid: int
    gpu: int | None = None
    gpu_memory_fraction: float = 1.0
    host: int = 0  # host of the arena; the dense vector is on host 0
    gate: str = ""  # address of the gate of a PS for other machines, as `tcp://10.0.0.1:*`
    keys: KeyPair | None = None  # the process' own keys in a run on several machines
    supervisor_key: str = ""  # the supervisor's public key; "": the supervisor is on this machine

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.role, self.index, self.incarnation)

    def gate_for(self, allowed: AllowList) -> Gate | None:
        """The gate through which other machines connect; None if none can."""
        return Gate(self.gate, self.keys, allowed) if self.gate and self.keys is not None else None

    @property
    def to_supervisor(self) -> Pass | None:
        """The keys that this process uses at the supervisor's gate; None if the supervisor is on this machine."""
        return Pass(self.keys, self.supervisor_key) if self.keys is not None and self.supervisor_key else None
