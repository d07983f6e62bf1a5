"""Refuses to continue a sync-mode run on a CPU with other features, because the result would have other bits."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.config.job import JobSpec
from elastichost.errors import CpuDiffersError
from elastichost.host.cpu_features import CpuFeatures, cpu_differences

__all__ = ["GO_ON_KNOWINGLY", "needs_same_cpu", "read_cpu", "require_same_cpu"]

GO_ON_KNOWINGLY = "train.any_cpu = true allows another CPU: the model is as good, but its bits differ"


def needs_same_cpu(job: JobSpec) -> bool:
    """Whether the job must continue on the same CPU features: sync mode without train.any_cpu, and not emulated
    (emulated processes compute nothing)."""
    return job.train.mode == "sync" and not job.train.any_cpu and not job.emulate.enabled


def require_same_cpu(job: JobSpec, before: CpuFeatures | None, now: CpuFeatures, where: str) -> None:
    """Raises CpuDiffersError with the differences between two CPUs. Pure.

    before: CPU features recorded in `where` (a run directory or a checkpoint); None: nothing is recorded."""
    if before is None or not needs_same_cpu(job):
        return
    if differences := cpu_differences(before, now):
        raise CpuDiffersError(
            f"{where} was trained in sync mode on another CPU; differences of this CPU: {'; '.join(differences)}",
            hint="resume on a machine with the same CPU features and the same environment variables. "
            f"{GO_ON_KNOWINGLY}",
        )


def read_cpu(path: Path) -> CpuFeatures | None:
    """The CPU features in a cpu.json; None if the file is missing or cannot be decoded."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CpuFeatures)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
