"""The state of a process of this machine, from /proc: stopped, asleep, waiting for a device, or running."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["KernelState", "kernel_state"]


class KernelState(NamedTuple):
    """letter: the kernel's letter for the state; "D" when any thread waits for a device, unless the process is stopped
    ("T"). cpu_ticks: CPU time of all threads, in clock ticks."""

    letter: str
    cpu_ticks: int


def kernel_state(pid: int) -> KernelState | None:
    """The state of the process; None when it has ended."""
    try:
        main = _fields(Path(f"/proc/{pid}/stat"))
        letters = {_fields(Path(entry.path, "stat"))[0] for entry in os.scandir(f"/proc/{pid}/task")}
    except (OSError, IndexError, ValueError):
        return None
    letter = "D" if "D" in letters and main[0] != "T" else main[0]
    return KernelState(letter, int(main[11]) + int(main[12]))


def _fields(stat: Path) -> list[str]:
    """The fields of a stat file from the third one on. The second one, the command's name in parentheses, may hold any
    characters."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
