"""Reads process trees, CPU time and memory from /proc, and kills all processes that carry a mark."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MARK",
    "Process",
    "busy_s",
    "cpu_s",
    "end_marked",
    "end_processes",
    "is_running",
    "memory_bytes",
    "signal_all",
    "tree_of",
]

MARK = "ELASTICHOST_BENCHMARK"  # an environment variable with the same value in every process of one benchmark
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KILL_S = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process. `name`: the name that it has set itself. `cpu_s`: user and system time of all its threads."""

    pid: int
    parent: int
    name: str
    state: str
    cpu_s: float


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name is in parentheses and may contain any character, so fields are counted from the last ")"
    end = text.rindex(")")
    fields = text[end + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    return Process(pid, int(fields[1]), text[text.index("(") + 1 : end], fields[0], ticks / TICKS_PER_S)


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def tree_of(root: int) -> list[Process]:
    """`root` and all living processes below it; `root` comes first."""
    children: dict[int, list[Process]] = {}
    found: list[Process] = []
    for process in filter(None, map(_read, _all_pids())):
        if process.state not in "ZX":
            children.setdefault(process.parent, []).append(process)
            if process.pid == root:
                found.append(process)
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def is_running(pid: int) -> bool:
    """Whether a process runs. A stopped process counts as running, a zombie does not."""
    process = _read(pid)
    return process is not None and process.state not in "ZX"


def cpu_s(pid: int) -> float:
    """User and system time of the process since its start, in seconds; 0 if there is no such process."""
    process = _read(pid)
    return process.cpu_s if process is not None else 0.0


def busy_s() -> float:
    """Core-seconds since boot in which this machine's cores were not idle, including time stolen by a hypervisor."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def memory_bytes(pid: int) -> int:
    """The proportional set size (PSS) in bytes: a shared page counts by its share. 0 if it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_processes(pids: Iterable[int]) -> None:
    """Kills the processes, including stopped ones, and waits up to 5 s until they have ended."""
    left = list(pids)
    signal_all(left, signal.SIGKILL)
    deadline_s = time.monotonic() + KILL_S
    while (left := [pid for pid in left if is_running(pid)]) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def end_marked(mark: str) -> None:
    """Kills every process with the mark in its environment, wherever it is in the process tree."""
    deadline_s = time.monotonic() + KILL_S
    while (left := _marked(mark)) and time.monotonic() < deadline_s:
        end_processes(left)
