"""What keeps jobs apart on this host, in tiers; each that is there is used, and the result tells of all in words.

    always    cores (affinity), nice, as many threads as planned, and the ledger: jobs start only if their peaks fit
    cgroups   a group for each job: the kernel holds it below a wall of memory, on its cores, at its weight
    resctrl   the memory traffic of each job is counted
    MPS       jobs on one GPU compute at the same time

A fence that fails is a warning, never the end of a job: without it the job is watched, as where there is none.

RLIMIT_DATA is no tier. It counts what is reserved, not what is used: some 14 MB for each thread of a worker, a read
buffer as large as its file may be, so that a supervisor that used 109 MB ended at 600. It does not count rows, which
are shared memory. And what ends there ends without a typed error: libgomp exits, sockets abort.
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
    " what is left of the ledger."
)
WATCHED = (
    "So memory is watched: when jobs together take more than there is, who takes more than it was charged gives it "
    "back."
)
WALLS = {
    "memory": f"the kernel ends processes of a job that takes {WALL:g} times the memory it is charged, and no others",
    "cpu": "threads of all jobs get equal shares of a core, but for their nice values",
    "cpuset": "no process leaves the cores of its job",
}


class Isolation:
    """The tiers of this host. Everything does nothing where a tier is missing."""

    def __init__(
        self, sentences: tuple[str, ...], cgroups: CgroupTier | None = None, resctrl: ResctrlTier | None = None
    ) -> None:
        self.sentences = sentences
        self._cgroups, self._resctrl = cgroups, resctrl

    def admit(self, job: str, pid: int | None, limits: JobLimits) -> tuple[str, ...]:
        """Fences for a job that is about to start. pid: of its first process, which has started no other yet; None: it
        goes in by itself, with `enter(doors(job))`, which leaves no moment between. Returns what failed, in words."""
        problems: tuple[str, ...] = ()
        if self._cgroups is not None:
            problems += self._cgroups.admit(job, pid, limits)
        if self._resctrl is not None:
            problems += self._resctrl.admit(job, pid)
        return problems

    def doors(self, job: str) -> tuple[str, ...]:
        """For `enter` in the job's first process."""
        tiers = (tier for tier in (self._cgroups, self._resctrl) if tier is not None)
        return tuple(str(door) for tier in tiers if (door := tier.door(job)) is not None)

    def change(self, job: str, limits: JobLimits) -> tuple[str, ...]:
        """Other limits for a job that runs. Returns what failed, in words."""
        return self._cgroups.change(job, limits) if self._cgroups is not None else ()

    def usage(self, job: str) -> JobUsage | None:
        """What the kernel counted of it so far; None: it counts nothing here. Ask before `release`."""
        used = self._cgroups.usage(job) if self._cgroups is not None else None
        traffic = self._resctrl.traffic_bytes(job) if self._resctrl is not None else None
        if traffic is None:
            return used
        return replace(used or JobUsage(), traffic_bytes=traffic)

    def release(self, job: str) -> None:
        """Its supervisor has ended. What is left of it some seconds later is killed by one of the next calls. Never
        waits."""
        if self._cgroups is not None:
            self._cgroups.release(job)
        if self._resctrl is not None:
            self._resctrl.release(job)

    def close(self) -> None:
        """Leaves the host as it was found; waits two seconds at most for what still lives."""
        if self._cgroups is not None:
            self._cgroups.close()
        if self._resctrl is not None:
            self._resctrl.close()


def enter(doors: Iterable[str], files: ControlFiles | None = None) -> tuple[str, ...]:
    """This process goes behind its fences, and with it all that it will start: call it before anything else. Returns
    what failed, in words."""
    files, problems = files or ControlFiles(), []
    for door in doors:
        try:
            files.write(Path(door), "0")
        except OSError as error:
            problems.append(f"{door}: cannot be entered: {error.strerror or error}")
    return tuple(problems)


def probe(
    files: ControlFiles | None = None,
    standing: Delegation | None = None,
    resctrl: Path = Path("/sys/fs/resctrl"),
    clock: Clock | None = None,
    has_gpus: bool = False,
) -> Isolation:
    """What there is on this host; call it before anything is started, and `close` the result. Where a cgroup was
    delegated to this process, and only there, it is divided for the jobs; nothing else is changed."""
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
    missing = f" Not to be had: {', '.join(lacks)}." if lacks else ""
    watched = "" if "memory" in tier.controllers else f" {WATCHED}"
    return tier, f"cgroup v2 ({tier.name}): each job has a group of its own: {'; '.join(has)}.{missing}{watched}"
