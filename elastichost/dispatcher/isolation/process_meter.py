"""Measures processes from /proc: CPU time of trees, waits of threads for a core, bytes that were read. One pass over
all processes of the host serves the CPU time of all jobs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["HostProcesses", "TreeUsage", "core_waits", "read_bytes"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """The use of a process and all its descendants. cpu_s: CPU seconds since the start of each, with those of children
    that have ended and were reaped."""

    cpu_s: float
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    cpu_s: float


class HostProcesses:
    """All processes of the host at the moment of construction."""

    def __init__(self) -> None:
        self._processes = _processes()
        self._children: dict[int, list[int]] = {}
        for pid, process in self._processes.items():
            self._children.setdefault(process.parent, []).append(pid)

    def tree(self, root: int) -> TreeUsage | None:
        """The use of a process and its descendants, the process first; None: it has ended."""
        if root not in self._processes:
            return None
        pids, pending = [], [root]
        while pending:
            pid = pending.pop()
            pids.append(pid)
            pending += self._children.get(pid, ())
        found = [self._processes[pid] for pid in pids]
        return TreeUsage(sum(p.cpu_s for p in found), tuple(pids))

    def cpu_s(self, pids: Iterable[int]) -> float:
        """CPU seconds of those of the processes that are alive."""
        return sum(self._processes[pid].cpu_s for pid in pids if pid in self._processes)


def read_bytes(pids: Iterable[int]) -> int | None:
    """Bytes that the processes have read so far, each from its start: with calls of read, or from a device through
    mapped files, whichever is more. Messages of sockets do not count. None: the kernel does not tell for one of
    them."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", "rb") as file:
                counts = dict(line.split(b": ") for line in file.read().splitlines())
            total += max(int(counts[b"rchar"]), int(counts[b"read_bytes"]))
        except (OSError, KeyError, ValueError):
            return None
    return total


def core_waits(pid: int) -> dict[int, float] | None:
    """The seconds that each thread of a process has been ready to run without a core, since its start, by thread id.
    None: the kernel does not tell, or the process has ended."""
    try:
        found = {}
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                found[int(thread)] = int(file.read().split()[1]) / 1e9
        return found or None
    except (OSError, IndexError, ValueError):
        return None


def _processes() -> dict[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                # fields from the third on, because the second (the name) may contain blanks and parentheses
                fields = file.read().rpartition(b")")[2].split()
                cpu_s = sum(map(int, fields[11:15])) / _TICKS_PER_S  # utime, stime, and those of reaped children
                found[int(name)] = _Process(int(fields[1]), cpu_s)
    return found
