"""What a job may take, and what is written into its cgroup (version 2) for that; what its files say. Pure.

With `charge` the bytes a job is charged, `threads` those that compute and `nice` how much it gives way:

    memory.max   WALL * charge         beyond it the kernel ends processes of the job, and nobody else's
    memory.high  NEAR * memory.max     from here on it is slowed, and what can be given back is taken
    cpu.weight   100 * threads * 1.25^-nice

The wall ends single processes (memory.oom.group stays 0): the supervisor lives and saves, and the process that looks
after the rows of a dead one, which are in shared memory and die with nobody, is not killed with it.

The weight grows with the threads because jobs of equal weight would have equal shares, however many threads each has:
every thread has the same, as without groups. 1.25 is the kernel's own step of one nice level.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from elastichost.host.machine import PAGE_BYTES
from elastichost.resources import core_list

__all__ = [
    "PREFIX",
    "WALL",
    "JobLimits",
    "JobUsage",
    "Mount",
    "cpu_weight",
    "group_directory",
    "group_name",
    "kept_bytes",
    "keyed",
    "mounted",
    "own_path",
    "wall_bytes",
    "written",
]

WALL = 1.25  # times the charge, which is 1.2 times the estimate or more: no honest estimate errs so
NEAR = 0.95  # of the wall
SLACK = 1.05  # times what a job has: a wall below that would end it at once
NICE_STEP = 1.25
UNIT_WEIGHT, LEAST_WEIGHT, MOST_WEIGHT = 100, 1, 10_000
PREFIX = "elastichost-"  # of every group that is made
NAME_LENGTH = 80


@dataclass(frozen=True, slots=True)
class JobLimits:
    """memory_bytes: what the job is charged, 0: no wall. threads: of all its workers and PS. cores: its processes may
    use these, (): all that the host may."""

    memory_bytes: int = 0
    threads: int = 1
    nice: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JobUsage:
    """What the kernel counted; None: it does not tell. memory_bytes: now, without what it takes back as it likes (page
    cache); peak_bytes: the most at any moment, page cache counted. oom_kills: processes it ended at the wall. slowed:
    so often the job was held up below the wall. traffic_bytes: moved between memory and caches so far."""

    memory_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kills: int = 0
    slowed: int = 0
    traffic_bytes: int | None = None


# --- what to write ----------------------------------------------------------------------------------------------------


def wall_bytes(limits: JobLimits, held_bytes: int = 0) -> int:
    """Whole pages; never below what the job has now."""
    wall = max(WALL * limits.memory_bytes, SLACK * held_bytes)
    return -(-int(wall) // PAGE_BYTES) * PAGE_BYTES


def cpu_weight(threads: int, nice: int) -> int:
    weight = round(UNIT_WEIGHT * max(1, threads) * NICE_STEP**-nice)
    return min(MOST_WEIGHT, max(LEAST_WEIGHT, weight))


def written(limits: JobLimits, controllers: frozenset[str], held_bytes: int = 0) -> tuple[tuple[str, str], ...]:
    """(file, content) in the order of writing, of the controllers that are there. held_bytes: what the job has now."""
    found: list[tuple[str, str]] = []
    if "memory" in controllers:
        wall = wall_bytes(limits, held_bytes)
        high = int(NEAR * wall) // PAGE_BYTES * PAGE_BYTES
        found += [
            ("memory.max", str(wall) if limits.memory_bytes else "max"),
            ("memory.high", str(high) if limits.memory_bytes else "max"),
            ("memory.swap.max", "0"),  # who is at the wall is not to be swapped out slowly beside the others
        ]
    if "cpu" in controllers:
        found.append(("cpu.weight", str(cpu_weight(limits.threads, limits.nice))))
    if "cpuset" in controllers:
        found.append(("cpuset.cpus", core_list(limits.cores)))
    return tuple(found)


def group_name(number: int, job: str) -> str:
    """Of a job's group; no two numbers have the same, and no name leaves its directory."""
    return f"{PREFIX}{number}-{re.sub('[^A-Za-z0-9_-]', '_', job)[:NAME_LENGTH]}"


# --- what is read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mount:
    """root: the group of the whole hierarchy that shows at `point`."""

    point: PurePosixPath
    root: str


def mounted(mountinfo: str, kind: str) -> tuple[Mount, ...]:
    """File systems of a kind ("cgroup2", "resctrl") in /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        before = fields.split()
        if len(before) >= 5 and rest.split(" ")[0] == kind:
            found.append(Mount(PurePosixPath(_unescaped(before[4])), _unescaped(before[3])))
    return tuple(found)


def _unescaped(text: str) -> str:
    """Blanks and the like are octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def own_path(proc_cgroup: str) -> str | None:
    """The group of version 2 in /proc/self/cgroup; None: the kernel has none."""
    return next((line[3:] for line in proc_cgroup.splitlines() if line.startswith("0::/")), None)


def group_directory(mount: Mount, own: str) -> PurePosixPath | None:
    """Where a group shows below a mount; None: it does not."""
    if ".." in mount.root.split("/"):
        return None  # mounted from above of what this process may see: where its own group is cannot be told
    relative = posixpath.relpath(own, mount.root)
    if relative == ".." or relative.startswith("../"):
        return None
    return mount.point / relative


def keyed(text: str) -> dict[str, int]:
    """Lines "name number", as in memory.events and memory.stat; others are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def kept_bytes(stat: Mapping[str, int]) -> int:
    """Of memory.stat: private and shared memory and the kernel's own; not what it reads files into."""
    kernel = stat.get("kernel", stat.get("kernel_stack", 0) + stat.get("pagetables", 0))
    return stat.get("anon", 0) + stat.get("shmem", 0) + kernel
