"""Reads the kernel state of processes that report no progress: stopped, asleep, waiting for a device, or computing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from elastichost.host.procfs import KernelState, kernel_state
from elastichost.plan import ProcessId
from elastichost.supervisor.core.fleet import ProcessRecord

__all__ = ["SilenceWatch"]

LOOK_AFTER_S = 1.0  # silence before the kernel is read: two heartbeats


def _here(record: ProcessRecord) -> KernelState | None:
    return kernel_state(record.pid)


class SilenceWatch:
    """Keeps `ProcessRecord.signs` of silent processes up to date. Call `look` every turn; it costs nothing while no
    process is silent. state_of: returns None for a process that has ended, or whose state is not reported."""

    def __init__(self, state_of: Callable[[ProcessRecord], KernelState | None] = _here) -> None:
        self._state_of = state_of
        self._idle: dict[ProcessId, tuple[int, float]] = {}  # CPU ticks, and since when they are the same

    def look(self, records: Iterable[ProcessRecord], now_s: float) -> None:
        silent = [r for r in records if r.is_live and r.pid and now_s - r.moved_s >= LOOK_AFTER_S]
        self._idle = {r.process: self._idle[r.process] for r in silent if r.process in self._idle}
        for record in silent:
            seen = self._state_of(record)
            if seen is None:
                continue  # it has ended, and its exit event follows
            before = self._idle.get(record.process)
            if before is None or before[0] != seen.cpu_ticks:
                before = self._idle[record.process] = (seen.cpu_ticks, now_s)
            # A process that waits for its GPU is asleep for the kernel; it counts as waiting for a device.
            state = "D" if seen.letter == "S" and record.spec.gpu is not None else seen.letter
            record.signs = msgspec.structs.replace(record.signs, state=state, idle_s=now_s - before[1])
