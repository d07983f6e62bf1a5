"""Reads the limits of this process' cgroup: of version 2, with those of the groups around it, because each limits what
is in it; of version 1, those at the mount's point, which in a container is the group of the container."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elastichost.host.cgroup.groups import groups_around

__all__ = ["CgroupLimits", "cgroup_limits"]

PROC = Path("/proc/self")
CGROUP = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60  # bytes; version 1 has its largest number where there is no limit


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """The least limits of all groups that this process is in; None: no limit. cores: whole cores of the CPU quota; 0
    for a quota of less than one."""

    memory_bytes: int | None = None
    cores: int | None = None


def cgroup_limits(proc: Path = PROC, usual: Path = CGROUP) -> CgroupLimits:
    """Returns the limits of this process. proc: its directory below /proc. usual: the directory with a mount for each
    controller of version 1, and the point of version 2 where /proc tells none."""
    groups = [Path(group) for group in groups_around(_read(proc / "mountinfo"), _read(proc / "cgroup"))] or [usual]
    memory = [_read(group / "memory.max") for group in groups]
    memory.append(_read(usual / "memory" / "memory.limit_in_bytes"))
    quotas = [_read(group / "cpu.max").partition(" ")[::2] for group in groups]
    cpu = usual / "cpu"
    quotas.append((_read(cpu / "cpu.cfs_quota_us"), _read(cpu / "cpu.cfs_period_us")))
    return CgroupLimits(
        min((int(text) for text in memory if text.isdecimal() and int(text) < UNLIMITED), default=None),
        min((cores for one in quotas if (cores := _whole_cores(*one)) is not None), default=None),
    )


def _whole_cores(quota: str, period: str) -> int | None:
    """The whole cores of a quota in microseconds for each period; None: no quota ("max", "-1", or no such file)."""
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) // int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""
