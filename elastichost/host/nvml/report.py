"""Joins what NVML tells about the GPUs of a run to one status for each GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import Any

from elastichost.host.nvml.state import GpuState, GpuStateMeter
from elastichost.host.nvml.use import GpuMeter, GpuUse
from elastichost.metrics import GpuStatus
from elastichost.resources import GpuDevice

__all__ = ["GpuReporter"]

RETRY_S = 10.0  # after an error the library is asked again this much later


class GpuReporter:
    """The statuses of the GPUs that a run uses on this machine; `close` it after use. Without GPUs it does nothing.

    An error of NVML never stops a run: it becomes the `problem` of the statuses, and the library is opened again after
    RETRY_S. A GPU that has fallen off the bus is not asked again, because it needs a reset. The library stays open
    then: opened anew, it may number the other GPUs in another way. nvml: replaces pynvml in tests.
    """

    def __init__(self, gpus: Sequence[GpuDevice], nvml: ModuleType | None = None) -> None:
        self._gpus = tuple(gpus)
        self._nvml: Any = nvml
        self._meters: tuple[GpuMeter, GpuStateMeter] | None = None
        self._problem = ""
        self._retry_s = 0.0
        self._looked_s: float | None = None
        self.lost: Mapping[int, str] = {}  # lost GPU -> what NVML said
        self.memory_bytes: Mapping[int, int] = {}  # pid -> memory on all GPUs, of every process that NVML names

    def look(self, now_s: float, own: Collection[int]) -> tuple[GpuStatus, ...]:
        """Measures now. own: pids of this run's processes."""
        if not self._gpus:
            return ()
        if self._nvml is None:
            import pynvml

            self._nvml = pynvml
        passed_s = now_s - self._looked_s if self._looked_s is not None else 0.0
        if self._problem and now_s < self._retry_s:
            return self._without()
        try:
            uses, states = self._read(now_s)
        except self._nvml.NVMLError as error:
            if self._drop_lost(str(error)):
                return self.look(now_s, own)
            self._fail(str(error), now_s)
            return self._without()
        self._problem, self._looked_s = "", now_s
        self.memory_bytes = _summed(uses)
        each_use = {use.index: use for use in uses}
        each_state = {state.index: state for state in states}
        return tuple(
            _status(gpu, each_use[gpu.index], each_state[gpu.index], passed_s, own)
            if gpu.index not in self.lost
            else _unmeasured(gpu, self.lost[gpu.index])
            for gpu in self._gpus
        )

    def _read(self, now_s: float) -> tuple[tuple[GpuUse, ...], tuple[GpuState, ...]]:
        if self._meters is None:
            left = [gpu for gpu in self._gpus if gpu.index not in self.lost]
            self._meters = GpuMeter(left, self._nvml), GpuStateMeter(left, self._nvml)
        use, state = self._meters
        states = state.read()
        uses = use.look(now_s)
        if use.problems:
            raise next(iter(use.problems.values()))
        return uses, states

    def _drop_lost(self, problem: str) -> bool:
        """Finds GPUs that have fallen off the bus, and does not ask them again. Returns whether there are new ones."""
        if self._meters is None:
            return False
        use, state = self._meters
        gone = state.lost()
        use.drop(gone)
        state.drop(gone)
        self.lost = {**self.lost, **dict.fromkeys(gone, problem)}
        return bool(gone)

    def _fail(self, problem: str, now_s: float) -> None:
        self.close()
        self._problem, self._retry_s, self._looked_s, self.memory_bytes = problem, now_s + RETRY_S, None, {}

    def _without(self) -> tuple[GpuStatus, ...]:
        return tuple(_unmeasured(gpu, self.lost.get(gpu.index, self._problem)) for gpu in self._gpus)

    def close(self) -> None:
        if self._meters is not None:
            for meter in self._meters:
                with contextlib.suppress(self._nvml.NVMLError):
                    meter.close()
            self._meters = None


def _unmeasured(gpu: GpuDevice, problem: str) -> GpuStatus:
    size = gpu.total_bytes or gpu.memory_bytes
    return GpuStatus(index=gpu.index, name=gpu.name, total_bytes=size, problem=problem)


def _status(gpu: GpuDevice, use: GpuUse, state: GpuState, passed_s: float, own: Collection[int]) -> GpuStatus:
    is_measured = passed_s > 0 and use.is_known
    named = {pid: use.by_pid[pid] for pid in use.by_pid if pid in own}
    memory = [size for pid, size in use.memory_bytes.items() if pid in own]
    return GpuStatus(
        index=gpu.index,
        name=gpu.name,
        total_bytes=state.total_bytes,
        busy=use.busy_s / passed_s if is_measured else None,
        memory_busy=use.memory_s / passed_s if is_measured else None,
        own_busy=sum(busy_s for busy_s, _ in named.values()) / passed_s if is_measured and named else None,
        used_bytes=state.used_bytes,
        own_bytes=sum(memory) if memory else None,
        received_bytes_per_s=state.received_bytes_per_s,
        sent_bytes_per_s=state.sent_bytes_per_s,
        clock_mhz=state.clock_mhz,
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        slowed_by=state.slowed_by,
    )


def _summed(uses: Sequence[GpuUse]) -> dict[int, int]:
    found: dict[int, int] = {}
    for use in uses:
        for pid, size in use.memory_bytes.items():
            found[pid] = found.get(pid, 0) + size
    return found
