"""Sync mode promises the same bits, which other CPU features break: whoever goes on elsewhere is told so first."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.config.job import JobSpec
from elastichost.errors import CpuDiffersError
from elastichost.host.cpu_features import CpuFeatures, cpu_differences

__all__ = ["GO_ON_KNOWINGLY", "needs_same_cpu", "read_cpu", "require_same_cpu"]

GO_ON_KNOWINGLY = "train.any_cpu = true goes on all the same: the model is as good, its bits are others"


def needs_same_cpu(job: JobSpec) -> bool:
    """Only sync mode promises bits; emulated processes compute nothing."""
    return job.train.mode == "sync" and not job.train.any_cpu and not job.emulate.enabled


def require_same_cpu(job: JobSpec, before: CpuFeatures | None, now: CpuFeatures, where: str) -> None:
    """before: as `where` says it was; None: nothing is recorded. Raises CpuDiffersError naming what differs. Pure."""
    if before is None or not needs_same_cpu(job):
        return
    if differences := cpu_differences(before, now):
        raise CpuDiffersError(
            f"{where} was trained in sync mode on another CPU: this one is {'; '.join(differences)}",
            hint=f"resume on a machine like the one it began on (environment variables too). {GO_ON_KNOWINGLY}",
        )


def read_cpu(path: Path) -> CpuFeatures | None:
    """What a run's directory says of the CPU it was trained on; None when it says nothing that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CpuFeatures)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
