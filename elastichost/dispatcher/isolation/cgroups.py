"""Creates a cgroup (version 2) for each job inside the group that was delegated to this process: with a memory limit, a
CPU weight and a set of cores.

    G                    the delegated group. The kernel does not allow processes in it while its children are limited
    G/elastichost-host   the dispatcher, its fork server, and the processes that examine jobs
    G/elastichost-7-ads  a job: its supervisor and all processes that the supervisor starts

If G cannot be divided, nothing is changed. `close` restores G.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path

from elastichost.clock import Clock, MonotonicClock
from elastichost.dispatcher.isolation.control_files import ControlFiles
from elastichost.dispatcher.isolation.delegation import Delegation, NotDelegatedError, delegated, processes_in
from elastichost.dispatcher.isolation.limits import PREFIX, JobLimits, JobUsage, group_name, kept_bytes, keyed, written

__all__ = ["CgroupTier", "open_cgroups"]

HOST = f"{PREFIX}host"
ATTEMPTS = 5  # to move all processes out of G, because they may start others meanwhile
CLOSE_S, POLL_S = 2.0, 0.01
LINGER_S = 10.0  # longer than the default of supervision.keep_arena_s


def open_cgroups(files: ControlFiles, standing: Delegation, clock: Clock) -> CgroupTier:
    """Divides the group of this process. Raises NotDelegatedError if that is not possible; nothing is changed then."""
    found = delegated(files, standing)
    tier = CgroupTier(found.directory, found.name, files, clock)
    try:
        tier.open(found.controllers, standing)
    except NotDelegatedError:
        tier.close()
        raise
    except OSError as error:
        tier.close()
        raise NotDelegatedError(f"{found.name} cannot be divided: {error.strerror or error}") from None
    return tier


@dataclass(slots=True)
class CgroupTier:
    """The groups of all jobs. base: the directory of G. name: path of G in the hierarchy. controllers: those that G
    hands on to its children. Only `open` raises; the other methods return sentences about what failed."""

    base: Path
    name: str
    files: ControlFiles
    clock: Clock = field(default_factory=MonotonicClock)
    controllers: frozenset[str] = frozenset()
    _groups: dict[str, Path] = field(default_factory=dict)
    _leaving: dict[Path, float] = field(default_factory=dict)  # group -> when its processes are killed
    _enabled: list[str] = field(default_factory=list)
    _host: Path | None = None
    _made: int = 0

    def open(self, wanted: tuple[str, ...], standing: Delegation) -> None:
        """Moves the processes of G to a child group, and enables the wanted controllers for the children. Raises
        NotDelegatedError, OSError."""
        for left in self.base.glob(f"{PREFIX}*/"):  # of a killed dispatcher; a group with processes is not removed
            with contextlib.suppress(OSError):
                self.files.remove(left)
        host = self.base / HOST
        self.files.make(host)
        self._host = host
        self._clear(host, standing)
        self._enable(wanted)

    def _clear(self, host: Path, standing: Delegation) -> None:
        """Moves all processes of G to `host`. Raises NotDelegatedError if G has processes that this process did not
        start."""
        for _ in range(ATTEMPTS):
            here = processes_in(self.files, self.base)
            if not here <= standing.family():
                raise NotDelegatedError(f"{self.name} has processes that this program did not start, and must not move")
            for pid in here:
                self._move(pid, host)
            if not here:
                return

    def _enable(self, wanted: tuple[str, ...]) -> None:
        control = self.base / "cgroup.subtree_control"
        before = self.files.read(control).split()
        problem: OSError | None = None
        for one in wanted:
            if one in before:
                continue
            try:
                self.files.write(control, f"+{one}")
                self._enabled.append(one)
            except OSError as error:
                problem = error  # the other controllers may still work
        self.controllers = frozenset(one for one in wanted if one in (*before, *self._enabled))
        if problem is not None and not self.controllers & {"memory", "cpu"}:
            raise problem

    def _move(self, pid: int, group: Path) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            self.files.write(group / "cgroup.procs", str(pid))

    # --- jobs -----------------------------------------------------------------------------------------------

    def door(self, job: str) -> Path | None:
        """The file into which a process writes 0 to enter the job's group; None: the job has no group."""
        group = self._groups.get(job)
        return None if group is None else group / "cgroup.procs"

    def admit(self, job: str, pid: int | None, limits: JobLimits) -> tuple[str, ...]:
        """Creates the group of a job and writes its limits. pid: the job's first process, which is moved there; None:
        the process enters by itself. Returns sentences about what failed."""
        self.release(job)
        self._made += 1
        group = self.base / group_name(self._made, job)
        try:
            self.files.make(group)
        except OSError as error:
            return (f"{job} runs without a cgroup, because none could be created: {error.strerror or error}",)
        self._groups[job] = group
        problems = self.change(job, limits)
        if pid is not None:
            try:
                self._move(pid, group)
            except OSError as error:
                problems += (f"{job} could not be moved to its cgroup: {error.strerror or error}",)
        return problems

    def change(self, job: str, limits: JobLimits) -> tuple[str, ...]:
        """Changes the limits of a job. A memory limit below the job's present use is raised above that use, so the
        change kills no process. Returns sentences about what failed."""
        group = self._groups.get(job)
        if group is None:
            return ()
        problems = []
        for name, content in written(limits, self.controllers, self._held_bytes(group)):
            if not (group / name).exists():
                continue  # older kernels, and kernels without swap, lack some files
            try:
                self.files.write(group / name, content)
            except OSError as error:
                problems.append(f"{job}: {name} could not be set to {content}: {error.strerror or error}")
        return tuple(problems)

    def _held_bytes(self, group: Path) -> int:
        return kept_bytes(self._keyed(group / "memory.stat"))

    def _keyed(self, path: Path) -> dict[str, int]:
        try:
            return keyed(self.files.read(path))
        except OSError:
            return {}

    def usage(self, job: str) -> JobUsage | None:
        """What the kernel counted of a job; None: it has no group, or the memory controller is missing."""
        group = self._groups.get(job)
        if group is None or "memory" not in self.controllers:
            return None
        events, peak = self._keyed(group / "memory.events"), None
        with contextlib.suppress(OSError, ValueError):  # memory.peak exists since Linux 5.19
            peak = int(self.files.read(group / "memory.peak"))
        return JobUsage(self._held_bytes(group), peak, events.get("oom_kill", 0), events.get("high", 0))

    def release(self, job: str, linger_s: float = LINGER_S) -> None:
        """Removes the group of a job at once, or with a later call when its last process has ended.

        A later call after `linger_s` kills the processes that are left. Until then the arena reaper may keep the arena
        of a supervisor that died."""
        group = self._groups.pop(job, None)
        if group is not None:
            self._leaving[group] = self.clock.now_s() + linger_s
        self._sweep()

    def _sweep(self) -> None:
        for group, until_s in tuple(self._leaving.items()):
            try:
                self.files.remove(group)
            except FileNotFoundError:
                pass
            except OSError:
                if self.clock.now_s() >= until_s:
                    with contextlib.suppress(OSError):  # cgroup.kill exists since Linux 5.14
                        self.files.write(group / "cgroup.kill", "1")
                continue
            del self._leaving[group]

    # --- the end --------------------------------------------------------------------------------------------

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Removes all groups that become empty within `wait_s` seconds, and restores G. An arena reaper that still runs
        stays in its group, which then has no limits."""
        for job in tuple(self._groups):
            self.release(job)
        deadline_s = time.monotonic() + wait_s
        while self._leaving and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            self._sweep()
        with contextlib.suppress(OSError, NotDelegatedError):  # what cannot be restored is left as it is
            self._go_back()

    def _go_back(self) -> None:
        while self._enabled:
            self.files.write(self.base / "cgroup.subtree_control", f"-{self._enabled[-1]}")
            self._enabled.pop()
        if self._host is None:
            return
        for pid in processes_in(self.files, self._host):
            self._move(pid, self.base)
        self.files.remove(self._host)
        self._host = None
