"""Measures with NVML what each process uses of each GPU: the time in which the GPU computes for it, and its memory.

NVML reports the share of time in which a GPU computed at all, and the same for each process. With frequent calls the
first is correct, but of the second only the proportions are: the shares of seven jobs added up to 1.2 while the GPU was
busy for 0.15 of the time. So the busy time is divided in these proportions, and the GPU seconds of a sample do not
depend on the jobs that run beside. Under MPS, NVML attributes all shares to the MPS server; `job_observer` divides them
among the jobs. In a container with its own pid namespace, NVML names pids that do not exist there. Then nothing is
measured, and the demands assumed for the kind of a job remain in use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

from elastichost.host.nvml.answers import told
from elastichost.resources import GpuDevice

__all__ = ["GpuMeter", "GpuUse"]

MPS_SERVER = "nvidia-cuda-mps"
LEAST_PERCENT = 0.25  # used for a process that computes and is reported with 0, because NVML reports whole percents


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of one GPU since the last call. busy_s: seconds in which it computed. memory_s: seconds in which its
    memory was read or written. by_pid: pid -> the same two values, for processes that NVML tells apart. memory_bytes:
    pid -> GPU memory. is_known: whether NVML tells busy_s and memory_s of this GPU; otherwise all seconds are 0."""

    index: int
    busy_s: float
    memory_s: float
    by_pid: Mapping[int, tuple[float, float]]
    memory_bytes: Mapping[int, int]
    is_known: bool = True

    @property
    def nobodys(self) -> tuple[float, float]:
        """The part of busy_s and memory_s that belongs to no process in `by_pid`."""
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
    shares: dict[int, tuple[float, float]] = field(default_factory=dict)  # pid -> newest reported (compute, memory)


class GpuMeter:
    """The meter of all GPUs; `close` it after use. Without GPUs it does nothing. nvml: replaces pynvml in tests.

    problems: GPU -> the NVMLError for which the last `look` left it out."""

    def __init__(self, gpus: Sequence[GpuDevice], nvml: ModuleType | None = None) -> None:
        self._gpus: list[_Gpu] = []
        self.problems: dict[int, Exception] = {}
        self._looked_s: float | None = None
        self._is_open = bool(gpus)
        if not gpus:
            return
        if nvml is None:
            import pynvml as nvml  # type: ignore[no-redef]
        assert nvml is not None
        self._nvml = nvml
        nvml.nvmlInit()
        self._gpus = [_Gpu(gpu.index, nvml.nvmlDeviceGetHandleByIndex(gpu.index)) for gpu in gpus]

    def close(self) -> None:
        self._gpus = []
        if self._is_open:
            self._is_open = False
            self._nvml.nvmlShutdown()

    def drop(self, gone: Collection[int]) -> None:
        """Asks these GPUs nothing any more."""
        self._gpus = [gpu for gpu in self._gpus if gpu.index not in gone]

    def look(self, now_s: float) -> tuple[GpuUse, ...]:
        """Returns the use of each GPU since the last call. A GPU for which NVML fails is left out, and its error is
        in `problems`. A GPU that only lacks a figure is not left out."""
        seconds = now_s - self._looked_s if self._looked_s is not None else 0.0
        self._looked_s = now_s
        found = []
        self.problems = {}
        for gpu in self._gpus:
            try:
                found.append(self._use(gpu, seconds))
            except self._nvml.NVMLError as error:
                self.problems[gpu.index] = error
        return tuple(found)

    def _use(self, gpu: _Gpu, seconds: float) -> GpuUse:
        nvml = self._nvml
        running = told(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, gpu.handle) or ()
        memory = {int(one.pid): int(one.usedGpuMemory or 0) for one in running}
        self._take_shares(gpu)
        gpu.shares = {pid: share for pid, share in gpu.shares.items() if pid in memory}
        rates = told(nvml, nvml.nvmlDeviceGetUtilizationRates, gpu.handle)
        busy_s, memory_s = (
            (seconds * rates.gpu / 100, seconds * rates.memory / 100) if rates is not None else (0.0, 0.0)
        )
        each_busy_s = _divided(busy_s, {pid: seconds * share[0] for pid, share in gpu.shares.items()})
        each_memory_s = _divided(memory_s, {pid: seconds * share[1] for pid, share in gpu.shares.items()})
        named = {pid: (each_busy_s[pid], each_memory_s[pid]) for pid in gpu.shares if not _is_mps(pid)}
        return GpuUse(gpu.index, busy_s, memory_s, named, memory, is_known=rates is not None)

    def _take_shares(self, gpu: _Gpu) -> None:
        """Updates the shares of processes. NVML returns only samples that are newer than the last call; a process
        without a new sample keeps its share. There are none where NVML does not tell processes apart."""
        nvml = self._nvml
        try:
            samples = told(nvml, nvml.nvmlDeviceGetProcessUtilization, gpu.handle, gpu.newest_us) or ()
        except nvml.NVMLError_NotFound:  # there is no newer sample
            return
        for sample in samples:
            gpu.newest_us = max(gpu.newest_us, int(sample.timeStamp))
            if sample.pid:
                gpu.shares[int(sample.pid)] = (sample.smUtil or LEAST_PERCENT) / 100, sample.memUtil / 100


def _divided(total: float, parts: Mapping[int, float]) -> dict[int, float]:
    """Returns the parts, scaled down so that their sum is at most the total."""
    factor = min(1.0, total / max(sum(parts.values()), 1e-12))
    return {pid: factor * part for pid, part in parts.items()}


def _is_mps(pid: int) -> bool:
    """Whether a process is the MPS server, which computes for other processes."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().startswith(MPS_SERVER)
    return False
