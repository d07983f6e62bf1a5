"""What the processes of a run execute, and what the fork server imports for them, by name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Entries"]


@dataclass(frozen=True, slots=True)
class Entries:
    """What the processes run, by name: the supervisor imports none of it. Tests may name others."""

    worker: str = "elastichost.worker.main:main"
    server: str = "elastichost.ps.main:main"
    probe: str = "elastichost.worker.probe:main"
    imports: tuple[str, ...] = (
        "torch",
        "torchrec",
        "elastichost.arena.kernels",
        *(f"elastichost.models.networks.{name}" for name in ("dcn", "deepfm", "dlrm", "wide_deep", "xdeepfm")),
        "elastichost.worker.main",
        "elastichost.worker.probe",
        "elastichost.ps.main",
    )
    calls: tuple[str, ...] = (
        "elastichost.arena.kernels:warm",
        "elastichost.datasets.warm:warm_kernels",
        "elastichost.worker.model.interaction_kernels:warm",
    )

    def of(self, role: str) -> str:
        return {"worker": self.worker, "server": self.server, "probe": self.probe}[role]
