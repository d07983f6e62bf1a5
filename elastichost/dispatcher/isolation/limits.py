"""Computes what is written into the cgroup (version 2) of a job, and parses what is read from cgroup files. Pure.

With the charge of a job in bytes, the number of its computing threads, and its nice value:

    memory.max   WALL * charge         beyond it the kernel kills processes of this job, and no others
    memory.high  NEAR * memory.max     beyond it the kernel slows the job and reclaims its memory
    cpu.weight   100 * threads * 1.25^-nice

At memory.max the kernel kills single processes, because memory.oom.group stays 0. If it kills a worker, the supervisor
survives and saves. If it kills the supervisor, the arena reaper survives, and keeps the rows in shared memory for a
while.

The weight is proportional to the threads, so that each thread gets the same share, as without groups. With equal
weights all jobs would get equal shares, however many threads they have. 1.25 is the kernel's factor of one nice level.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from elastichost.host.machine import PAGE_BYTES
from elastichost.resources import core_list

__all__ = [
    "PREFIX",
    "WALL",
    "JobLimits",
    "JobUsage",
    "cpu_weight",
    "group_name",
    "kept_bytes",
    "keyed",
    "wall_bytes",
    "written",
]

WALL = 1.25  # times the charge, which is at least 1.2 times the estimate: estimates are rarely wrong by more
NEAR = 0.95  # times memory.max
SLACK = 1.05  # times the present use of a job: the kernel would kill it at once if memory.max were lower
NICE_STEP = 1.25
UNIT_WEIGHT, LEAST_WEIGHT, MOST_WEIGHT = 100, 1, 10_000
PREFIX = "elastichost-"  # of the name of every group
NAME_LENGTH = 80


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of a job. memory_bytes: its charge; 0: no memory limit. threads: sum over all workers and PS. cores:
    those that its processes may use; (): all cores of the host."""

    memory_bytes: int = 0
    threads: int = 1
    nice: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What the kernel counted for a job; None: not available.

    memory_bytes: present use without the page cache, which the kernel can reclaim. peak_bytes: largest use, with the
    page cache. oom_kills: number of processes that were killed at memory.max. slowed: number of times that the job was
    slowed at memory.high. traffic_bytes: bytes moved between memory and caches so far."""

    memory_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kills: int = 0
    slowed: int = 0
    traffic_bytes: int | None = None


# --- what to write ----------------------------------------------------------------------------------------------------


def wall_bytes(limits: JobLimits, held_bytes: int = 0) -> int:
    """Returns memory.max for a job, in whole pages. held_bytes: its present use, which memory.max is not below."""
    wall = max(WALL * limits.memory_bytes, SLACK * held_bytes)
    return -(-int(wall) // PAGE_BYTES) * PAGE_BYTES


def cpu_weight(threads: int, nice: int) -> int:
    """Returns cpu.weight for a job, within the kernel's limits of 1 and 10 000."""
    weight = round(UNIT_WEIGHT * max(1, threads) * NICE_STEP**-nice)
    return min(MOST_WEIGHT, max(LEAST_WEIGHT, weight))


def written(limits: JobLimits, controllers: frozenset[str], held_bytes: int = 0) -> tuple[tuple[str, str], ...]:
    """Returns (file, content) in the order of writing, for the controllers that exist. held_bytes: the job's present
    use."""
    found: list[tuple[str, str]] = []
    if "memory" in controllers:
        wall = wall_bytes(limits, held_bytes)
        high = int(NEAR * wall) // PAGE_BYTES * PAGE_BYTES
        found += [
            ("memory.max", str(wall) if limits.memory_bytes else "max"),
            ("memory.high", str(high) if limits.memory_bytes else "max"),
            ("memory.swap.max", "0"),  # a job at its limit must not slow other jobs by swapping
        ]
    if "cpu" in controllers:
        found.append(("cpu.weight", str(cpu_weight(limits.threads, limits.nice))))
    if "cpuset" in controllers:
        found.append(("cpuset.cpus", core_list(limits.cores)))
    return tuple(found)


def group_name(number: int, job: str) -> str:
    """Returns the name of a job's group. It contains the number, so it is unique. It contains no character that leads
    to another directory."""
    return f"{PREFIX}{number}-{re.sub('[^A-Za-z0-9_-]', '_', job)[:NAME_LENGTH]}"


# --- what is read -----------------------------------------------------------------------------------------------------


def keyed(text: str) -> dict[str, int]:
    """Parses lines "name number", as in memory.events and memory.stat. Other lines are ignored."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def kept_bytes(stat: Mapping[str, int]) -> int:
    """Returns the bytes of memory.stat that the kernel cannot reclaim: private, shared and kernel memory, without the
    page cache."""
    kernel = stat.get("kernel", stat.get("kernel_stack", 0) + stat.get("pagetables", 0))
    return stat.get("anon", 0) + stat.get("shmem", 0) + kernel
