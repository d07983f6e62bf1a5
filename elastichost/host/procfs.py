"""What the kernel says of a process of this machine: stopped, asleep, waiting for a device, or at work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["KernelState", "kernel_state"]


class KernelState(NamedTuple):
    """letter: the kernel's, "D" when any of its threads waits for a device. cpu_ticks: of all its threads."""

    letter: str
    cpu_ticks: int


def kernel_state(pid: int) -> KernelState | None:
    """None: it has ended."""
    try:
        main = _fields(Path(f"/proc/{pid}/stat"))
        letters = {_fields(Path(entry.path, "stat"))[0] for entry in os.scandir(f"/proc/{pid}/task")}
    except (OSError, IndexError, ValueError):
        return None
    letter = "D" if "D" in letters and main[0] != "T" else main[0]
    return KernelState(letter, int(main[11]) + int(main[12]))


def _fields(stat: Path) -> list[str]:
    """From the third one on. The command's name stands in parentheses and may hold anything."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
