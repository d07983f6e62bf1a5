"""The cores, memory and GPUs that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from elastichost.host.nvml.devices import usable_devices
from elastichost.resources import HostInventory

__all__ = ["inventory", "memory_of_host"]

_CGROUP = Path("/sys/fs/cgroup")


def inventory() -> HostInventory:
    """The cores of the affinity mask within the cgroup's CPU quota, the memory within the cgroup's limit, and the GPUs
    that NVML knows, within CUDA_VISIBLE_DEVICES."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    quota = _quota_cores()
    if quota is not None:
        cores = cores[: max(1, quota)]
    limits = [psutil.virtual_memory().total, *_memory_limits()]
    return HostInventory(cores=cores, memory_bytes=min(limits), gpus=usable_devices())


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _quota_cores() -> int | None:
    """The whole cores of cgroup v2's cpu.max, or of v1's CFS quota; None: no quota."""
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if not quota.isdigit():
        quota = _read(_CGROUP / "cpu" / "cpu.cfs_quota_us")
        period = _read(_CGROUP / "cpu" / "cpu.cfs_period_us")
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return int(quota) // int(period)


def _memory_limits() -> list[int]:
    texts = (_read(_CGROUP / "memory.max"), _read(_CGROUP / "memory" / "memory.limit_in_bytes"))
    return [int(text) for text in texts if text.isdigit()]


def memory_of_host(budget_bytes: int, hosts: int) -> int:
    """The memory budget of each host. `resources.memory` is the budget of one host. Several hosts on this machine share
    its memory: each gets at most an equal part of 90 % of it."""
    return budget_bytes if hosts == 1 else min(budget_bytes, psutil.virtual_memory().total * 9 // 10 // hosts)
