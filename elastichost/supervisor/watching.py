"""Looks at processes that have fallen silent, through /proc: stopped, asleep, waiting for a device, or at work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from elastichost.plan import ProcessId
from elastichost.supervisor.observed import ProcessRecord

__all__ = ["SilenceWatch"]

LOOK_AFTER_S = 1.0  # of silence: twice a heartbeat


class _Look(NamedTuple):
    state: str
    cpu_ticks: int


class SilenceWatch:
    """Keeps `ProcessRecord.signs` of silent processes up to date. Call `look` every turn; it costs nothing while
    everybody speaks."""

    def __init__(self) -> None:
        self._idle: dict[ProcessId, tuple[int, float]] = {}  # CPU ticks, and since when they are the same

    def look(self, records: Iterable[ProcessRecord], now_s: float) -> None:
        silent = [r for r in records if r.is_live and r.pid and now_s - r.moved_s >= LOOK_AFTER_S]
        self._idle = {r.process: self._idle[r.process] for r in silent if r.process in self._idle}
        for record in silent:
            seen = _look(record.pid)
            if seen is None:
                continue  # it has ended: its exit will be seen
            before = self._idle.get(record.process)
            if before is None or before[0] != seen.cpu_ticks:
                before = self._idle[record.process] = (seen.cpu_ticks, now_s)
            # A process with a GPU may wait for it, which looks like sleep.
            state = "D" if seen.state == "S" and record.spec.gpu is not None else seen.state
            record.signs = msgspec.structs.replace(record.signs, state=state, idle_s=now_s - before[1])


def _look(pid: int) -> _Look | None:
    """The kernel's letter for a process ("D" when any of its threads waits for a device), and CPU ticks of all its
    threads."""
    try:
        main = _fields(Path(f"/proc/{pid}/stat"))
        letters = {_fields(Path(entry.path, "stat"))[0] for entry in os.scandir(f"/proc/{pid}/task")}
    except (OSError, IndexError, ValueError):
        return None
    state = "D" if "D" in letters and main[0] != "T" else main[0]
    return _Look(state, int(main[11]) + int(main[12]))


def _fields(stat: Path) -> list[str]:
    """From the third one on. The command's name stands in parentheses and may hold anything."""
    return stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
