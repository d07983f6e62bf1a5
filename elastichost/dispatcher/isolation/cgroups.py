"""A cgroup (version 2) for each job, where one was delegated to this process: a wall of memory, a weight, its cores.

    G                    the group that was delegated; it has no processes of its own then, as the kernel wants it
    G/elastichost-host   the dispatcher, its fork server, what looks at jobs
    G/elastichost-7-ads  a job: its supervisor and everything it starts

Nothing is changed where it cannot be used, and `close` leaves G as it was found.
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
ATTEMPTS = 5  # to move all processes of this one: it may start some meanwhile
CLOSE_S, POLL_S = 2.0, 0.01
LINGER_S = 10.0  # beyond supervision.keep_arena_s


def open_cgroups(files: ControlFiles, standing: Delegation, clock: Clock) -> CgroupTier:
    """Divides the group of this process. Raises NotDelegatedError, and has changed nothing then."""
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
    """base: G, `name` in the hierarchy. No method but `open` raises: what is returned in words has failed."""

    base: Path
    name: str
    files: ControlFiles
    clock: Clock = field(default_factory=MonotonicClock)
    controllers: frozenset[str] = frozenset()
    _groups: dict[str, Path] = field(default_factory=dict)
    _leaving: dict[Path, float] = field(default_factory=dict)  # until when its processes may live
    _enabled: list[str] = field(default_factory=list)
    _host: Path | None = None
    _made: int = 0

    def open(self, wanted: tuple[str, ...], standing: Delegation) -> None:
        """Raises NotDelegatedError, OSError."""
        for left in self.base.glob(f"{PREFIX}*/"):  # of a dispatcher that was killed, unless somebody lives in it
            with contextlib.suppress(OSError):
                self.files.remove(left)
        host = self.base / HOST
        self.files.make(host)
        self._host = host
        self._clear(host, standing)
        self._enable(wanted)

    def _clear(self, host: Path, standing: Delegation) -> None:
        """A group whose children are controlled may have no processes of its own."""
        for _ in range(ATTEMPTS):
            here = processes_in(self.files, self.base)
            if not here <= standing.family():
                raise NotDelegatedError(f"{self.name} has processes of others in it, which are not to be moved")
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
                problem = error  # one that this kernel cannot hand on: the others may do
        self.controllers = frozenset(one for one in wanted if one in (*before, *self._enabled))
        if problem is not None and not self.controllers & {"memory", "cpu"}:
            raise problem

    def _move(self, pid: int, group: Path) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            self.files.write(group / "cgroup.procs", str(pid))

    # --- jobs -----------------------------------------------------------------------------------------------

    def door(self, job: str) -> Path | None:
        """Where a process writes 0 to go in."""
        group = self._groups.get(job)
        return None if group is None else group / "cgroup.procs"

    def admit(self, job: str, pid: int | None, limits: JobLimits) -> tuple[str, ...]:
        """A group for a job; pid: of its first process, moved before it starts others; None: it goes in by itself."""
        self.release(job)
        self._made += 1
        group = self.base / group_name(self._made, job)
        try:
            self.files.make(group)
        except OSError as error:
            return (f"{job} runs without a cgroup of its own: {error.strerror or error}",)
        self._groups[job] = group
        problems = self.change(job, limits)
        if pid is not None:
            try:
                self._move(pid, group)
            except OSError as error:
                problems += (f"{job} stays outside of its cgroup: {error.strerror or error}",)
        return problems

    def change(self, job: str, limits: JobLimits) -> tuple[str, ...]:
        """Other limits, from now on. A wall below what the job has is put above that: nobody is killed by a change."""
        group = self._groups.get(job)
        if group is None:
            return ()
        problems = []
        for name, content in written(limits, self.controllers, self._held_bytes(group)):
            if not (group / name).exists():
                continue  # an older kernel, or one without swap
            try:
                self.files.write(group / name, content)
            except OSError as error:
                problems.append(f"{job}: {name} cannot be {content}: {error.strerror or error}")
        return tuple(problems)

    def _held_bytes(self, group: Path) -> int:
        return kept_bytes(self._keyed(group / "memory.stat"))

    def _keyed(self, path: Path) -> dict[str, int]:
        try:
            return keyed(self.files.read(path))
        except OSError:
            return {}

    def usage(self, job: str) -> JobUsage | None:
        """None: it has no group, or none whose memory is counted."""
        group = self._groups.get(job)
        if group is None or "memory" not in self.controllers:
            return None
        events, peak = self._keyed(group / "memory.events"), None
        with contextlib.suppress(OSError, ValueError):  # it is there from Linux 5.19 on
            peak = int(self.files.read(group / "memory.peak"))
        return JobUsage(self._held_bytes(group), peak, events.get("oom_kill", 0), events.get("high", 0))

    def release(self, job: str, linger_s: float = LINGER_S) -> None:
        """Its group goes at once, or with a later call when its last process has. Who is in it after `linger_s` is
        killed: until then somebody may look after the rows of a dead supervisor."""
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
                    with contextlib.suppress(OSError):  # it is there from Linux 5.14 on
                        self.files.write(group / "cgroup.kill", "1")
                continue
            del self._leaving[group]

    # --- the end --------------------------------------------------------------------------------------------

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Removes all groups that are empty within `wait_s`, and goes back where it was. Who looks after rows lives on
        in a group without limits."""
        for job in tuple(self._groups):
            self.release(job)
        deadline_s = time.monotonic() + wait_s
        while self._leaving and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            self._sweep()
        with contextlib.suppress(OSError, NotDelegatedError):  # what cannot be undone is left as it is
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
