"""What processes use of each GPU, from NVML: the time in which it computes for them, and its memory.

NVML says in which share of a moment a GPU computed at all, and in which it computed for each process. Asked often, it
is right in the first, and of the second only the proportions are: seven jobs had 1.2 together while the GPU was busy
for 0.15 of the time. So they divide what it was busy, and the GPU seconds of a sample are the same in any company, as
its CPU seconds are. Under MPS all shares are those of its server, thus nobody's: `watching` divides them. In a
container with process ids of its own NVML names processes that are not seen there: nothing is measured then, and what
is assumed of kinds of jobs stands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from elastichost.resources import GpuDevice

__all__ = ["GpuMeter", "GpuUse"]

MPS_SERVER = "nvidia-cuda-mps"
LEAST_PERCENT = 0.25  # of a process that computes, and of which NVML says 0: whole percents are all it says


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Of one GPU since the last look. busy_s: seconds in which anything computed on it, memory_s: in which its memory
    was read or written. by_pid: the same two of those processes that could be told apart; memory_bytes: by pid."""

    index: int
    busy_s: float
    memory_s: float
    by_pid: Mapping[int, tuple[float, float]]
    memory_bytes: Mapping[int, int]

    @property
    def nobodys(self) -> tuple[float, float]:
        """busy_s and memory_s of no process that could be told apart."""
        named = self.by_pid.values()
        return (
            max(0.0, self.busy_s - sum(one[0] for one in named)),
            max(0.0, self.memory_s - sum(one[1] for one in named)),
        )


@dataclass(slots=True)
class _Gpu:
    index: int
    handle: object
    newest_us: int = 0
    shares: dict[int, tuple[float, float]] = field(default_factory=dict)  # by pid, as last said


class GpuMeter:
    """Close it. nvml: pynvml, or what stands for it. Without GPUs it does nothing."""

    def __init__(self, gpus: Sequence[GpuDevice], nvml: ModuleType | None = None) -> None:
        self._gpus: list[_Gpu] = []
        self._looked_s: float | None = None
        if not gpus:
            return
        if nvml is None:
            import pynvml as nvml  # type: ignore[no-redef]
        assert nvml is not None
        self._nvml = nvml
        nvml.nvmlInit()
        self._gpus = [_Gpu(gpu.index, nvml.nvmlDeviceGetHandleByIndex(gpu.index)) for gpu in gpus]

    def close(self) -> None:
        if self._gpus:
            self._gpus = []
            self._nvml.nvmlShutdown()

    def look(self, now_s: float) -> tuple[GpuUse, ...]:
        """Each GPU, in their order. A GPU that does not answer is left out of this look."""
        seconds = now_s - self._looked_s if self._looked_s is not None else 0.0
        self._looked_s = now_s
        found = []
        for gpu in self._gpus:
            with contextlib.suppress(self._nvml.NVMLError):
                found.append(self._use(gpu, seconds))
        return tuple(found)

    def _use(self, gpu: _Gpu, seconds: float) -> GpuUse:
        memory = {
            int(one.pid): int(one.usedGpuMemory or 0)
            for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
        }
        self._take_shares(gpu)
        gpu.shares = {pid: share for pid, share in gpu.shares.items() if pid in memory}
        rates = self._nvml.nvmlDeviceGetUtilizationRates(gpu.handle)
        busy_s, memory_s = seconds * rates.gpu / 100, seconds * rates.memory / 100
        each_busy_s = _divided(busy_s, {pid: seconds * share[0] for pid, share in gpu.shares.items()})
        each_memory_s = _divided(memory_s, {pid: seconds * share[1] for pid, share in gpu.shares.items()})
        named = {pid: (each_busy_s[pid], each_memory_s[pid]) for pid in gpu.shares if not _is_mps(pid)}
        return GpuUse(gpu.index, busy_s, memory_s, named, memory)

    def _take_shares(self, gpu: _Gpu) -> None:
        """NVML tells what is newer than it told before; of a process without news the last share stands."""
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(gpu.handle, gpu.newest_us)
        except self._nvml.NVMLError_NotFound:  # nothing is newer
            return
        for sample in samples:
            gpu.newest_us = max(gpu.newest_us, int(sample.timeStamp))
            if sample.pid:
                gpu.shares[int(sample.pid)] = (sample.smUtil or LEAST_PERCENT) / 100, sample.memUtil / 100


def _divided(total: float, parts: Mapping[int, float]) -> dict[int, float]:
    """The parts, which are no more than the total together."""
    factor = min(1.0, total / max(sum(parts.values()), 1e-12))
    return {pid: factor * part for pid, part in parts.items()}


def _is_mps(pid: int) -> bool:
    """Whether it is MPS' server, which computes for others."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().startswith(MPS_SERVER)
    return False
