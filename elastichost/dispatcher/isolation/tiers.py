"""Isolates jobs from each other in tiers. Every tier that this host offers is used, and sentences tell the user which.

    always    cores (affinity), nice value, the planned number of threads; a job starts only if its peak memory fits
    cgroups   a group for each job: the kernel enforces its memory limit, its cores and its CPU weight
    resctrl   the memory traffic of each job is counted
    MPS       jobs on one GPU compute at the same time

If a tier fails for a job, the job continues with a warning, as on a host without the tier.

RLIMIT_DATA is not used. It counts reserved memory, not used memory: about 14 MB for each thread of a worker, and read
buffers as large as the file. A supervisor that used 109 MB failed with a limit of 600 MB. It does not count the rows,
which are shared memory. And processes that reach it end without a typed error: libgomp exits, ZeroMQ aborts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from elastichost.clock import Clock, MonotonicClock
from elastichost.dispatcher.isolation.cgroups import CgroupTier, open_cgroups
from elastichost.dispatcher.isolation.control_files import ControlFiles
from elastichost.dispatcher.isolation.delegation import Delegation, NotDelegatedError
from elastichost.dispatcher.isolation.limits import WALL, JobLimits, JobUsage
from elastichost.dispatcher.isolation.mps import find_mps
from elastichost.dispatcher.isolation.process_meter import HostProcesses
from elastichost.dispatcher.isolation.resctrl import ResctrlTier, open_resctrl

__all__ = ["ALWAYS", "Isolation", "JobLimits", "JobUsage", "enter", "probe"]

ALWAYS = (
    "Always: a job has the cores, the nice value and the threads of its plan, and starts only when its peak memory fits"
    " in the free memory of the ledger."
)
WATCHED = (
    "So memory is watched: when the jobs together use too much, the job that exceeds its estimate most is limited, "
    "then evicted, then killed."
)
WALLS = {
    "memory": f"the kernel kills processes of a job that uses {WALL:g} times its charged memory, and no others",
    "cpu": "threads of all jobs with the same nice value get equal shares of the cores",
    "cpuset": "processes of a job use no cores but those of the job",
}


class Isolation:
    """The tiers of this host. A method does nothing for a missing tier. sentences: what each tier does here, or why it
    is missing."""

    def __init__(
        self, sentences: tuple[str, ...], cgroups: CgroupTier | None = None, resctrl: ResctrlTier | None = None
    ) -> None:
        self.sentences = sentences
        self._cgroups, self._resctrl = cgroups, resctrl

    def admit(self, job: str, pid: int | None, limits: JobLimits) -> tuple[str, ...]:
        """Creates the groups of a job that is about to start. pid: its first process, which must not have started
        others yet; None: it enters by itself with `enter(doors(job))`, before it does anything else. Returns sentences
        about what failed."""
        problems: tuple[str, ...] = ()
        if self._cgroups is not None:
            problems += self._cgroups.admit(job, pid, limits)
        if self._resctrl is not None:
            problems += self._resctrl.admit(job, pid)
        return problems

    def doors(self, job: str) -> tuple[str, ...]:
        """Returns the files that the job's first process must pass to `enter`."""
        tiers = (tier for tier in (self._cgroups, self._resctrl) if tier is not None)
        return tuple(str(door) for tier in tiers if (door := tier.door(job)) is not None)

    def change(self, job: str, limits: JobLimits) -> tuple[str, ...]:
        """Changes the limits of a running job. Returns sentences about what failed."""
        return self._cgroups.change(job, limits) if self._cgroups is not None else ()

    def usage(self, job: str) -> JobUsage | None:
        """Returns what the kernel counted for a job so far; None: it counts nothing here. Call it before `release`."""
        used = self._cgroups.usage(job) if self._cgroups is not None else None
        traffic = self.traffic_bytes(job)
        if traffic is None:
            return used
        return replace(used or JobUsage(), traffic_bytes=traffic)

    def traffic_bytes(self, job: str) -> int | None:
        """Bytes that a job has moved between memory and caches so far; None: the processor does not count them."""
        return self._resctrl.traffic_bytes(job) if self._resctrl is not None else None

    def release(self, job: str) -> None:
        """Removes the groups of a job whose supervisor has ended. A later call kills the processes that are still there
        after some seconds. Does not block."""
        if self._cgroups is not None:
            self._cgroups.release(job)
        if self._resctrl is not None:
            self._resctrl.release(job)

    def close(self) -> None:
        """Restores the host. Waits at most two seconds for processes that still run."""
        if self._cgroups is not None:
            self._cgroups.close()
        if self._resctrl is not None:
            self._resctrl.close()


def enter(doors: Iterable[str], files: ControlFiles | None = None) -> tuple[str, ...]:
    """Moves this process into its groups, and with it all processes that it will start: call it first. doors: of
    `Isolation.doors`. Returns sentences about what failed."""
    files, problems = files or ControlFiles(), []
    for door in doors:
        try:
            files.write(Path(door), "0")
        except OSError as error:
            problems.append(f"{door}: this process could not enter the group: {error.strerror or error}")
    return tuple(problems)


def probe(
    files: ControlFiles | None = None,
    standing: Delegation | None = None,
    resctrl: Path = Path("/sys/fs/resctrl"),
    clock: Clock | None = None,
    has_gpus: bool = False,
) -> Isolation:
    """Finds the tiers of this host. If a cgroup was delegated to this process, it is divided for the jobs; nothing else
    is changed. Call it before any process is started, and `close` the result."""
    files = files or ControlFiles()
    standing = standing or Delegation(Path("/proc/self"), os.geteuid(), _family)
    cgroups, cgroup_words = _cgroup_tier(files, standing, clock or MonotonicClock())
    monitors, monitor_words = open_resctrl(resctrl, files)
    sentences = (ALWAYS, cgroup_words, monitor_words, *((find_mps(os.environ),) if has_gpus else ()))
    return Isolation(sentences, cgroups, monitors)


def _family() -> frozenset[int]:
    tree = HostProcesses().tree(os.getpid())
    return frozenset(tree.pids) if tree is not None else frozenset()


def _cgroup_tier(files: ControlFiles, standing: Delegation, clock: Clock) -> tuple[CgroupTier | None, str]:
    try:
        tier = open_cgroups(files, standing, clock)
    except NotDelegatedError as error:
        return None, f"cgroup v2: {error.message}. {WATCHED}"
    has = [words for name, words in WALLS.items() if name in tier.controllers]
    lacks = [name for name in WALLS if name not in tier.controllers]
    missing = f" Controllers that are not available: {', '.join(lacks)}." if lacks else ""
    watched = "" if "memory" in tier.controllers else f" {WATCHED}"
    return tier, f"cgroup v2 ({tier.name}): each job has its own group: {'; '.join(has)}.{missing}{watched}"
