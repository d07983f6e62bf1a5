"""The cores, memory and GPUs that this process may use."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from elastichost.host.cgroup.limits import cgroup_limits
from elastichost.host.nvml.devices import usable_devices
from elastichost.resources import HostInventory

__all__ = ["cores_of_quota", "inventory", "memory_of_host", "seed_of"]

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROC = Path("/proc/self")


def inventory() -> HostInventory:
    """The cores of the affinity mask, as many as the cgroup's CPU quota allows, the memory within the cgroup's limit,
    and the GPUs that NVML knows, within CUDA_VISIBLE_DEVICES."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    quota = cgroup_limits().cores
    if quota is not None and quota < len(cores):
        cores = cores_of_quota(cores, max(1, quota), _container_seed(), {core: _siblings(core) for core in cores})
    return HostInventory(cores=cores, memory_bytes=_memory_bytes(), gpus=usable_devices())


def cores_of_quota(
    cores: tuple[int, ...], count: int, seed: int, siblings: Mapping[int, str] | None = None
) -> tuple[int, ...]:
    """Returns `count` of the cores, in ascending order. Pure.

    A quota limits how many cores a container uses, and not which. If each took the first ones, all containers of a host
    would crowd there. So the cores are a ring, and the seed, which differs between containers, tells where the part of
    one begins. In the ring the first threads of all physical cores are before their second ones, so a part holds two
    threads of one physical core only where it is longer than the number of these. siblings: core -> a name of its
    physical core; cores without one are alone."""
    seen: dict[str, int] = {}
    rank: dict[int, int] = {}
    for core in sorted(cores):
        physical = (siblings or {}).get(core) or f"alone {core}"
        rank[core] = seen.get(physical, 0)
        seen[physical] = rank[core] + 1
    ring = sorted(cores, key=lambda core: (rank[core], core))
    begin = seed % max(1, len(ring))
    return tuple(sorted((ring[begin:] + ring[:begin])[:count]))


def seed_of(*names: str) -> int:
    """Returns a number that is the same for the same names, and most likely another one for others. Pure."""
    return int.from_bytes(hashlib.blake2b("\0".join(names).encode(errors="replace"), digest_size=8).digest(), "big")


def _container_seed() -> int:
    """A number that all processes of a container have in common until the host boots anew. Containers of one host
    differ in a namespace or in their cgroup."""
    return seed_of(
        _told(_BOOT.read_text),
        _told(lambda: os.readlink(_PROC / "ns" / "pid")),
        _told(lambda: os.readlink(_PROC / "ns" / "cgroup")),
        _told((_PROC / "cgroup").read_text),
    )


def _siblings(core: int) -> str:
    """The threads of the core's physical core, as the kernel lists them; "": not known."""
    return _told(Path(_SIBLINGS.format(core)).read_text)


def _told(read: Callable[[], str]) -> str:
    with contextlib.suppress(OSError):
        return read().strip()
    return ""


def _memory_bytes() -> int:
    """The memory of this machine, within the cgroup's limit."""
    total_bytes, limit_bytes = psutil.virtual_memory().total, cgroup_limits().memory_bytes
    return int(total_bytes if limit_bytes is None else min(total_bytes, limit_bytes))


def memory_of_host(budget_bytes: int, hosts: int) -> int:
    """The memory budget of each host. `resources.memory` is the budget of one host. Several hosts on this machine share
    its memory, within the cgroup's limit: each gets at most an equal part of 90 % of it."""
    return budget_bytes if hosts == 1 else min(budget_bytes, _memory_bytes() * 9 // 10 // hosts)
