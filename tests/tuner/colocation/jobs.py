"""Jobs and hosts for the tests of co-location."""

from __future__ import annotations

from elastichost.tuner.colocation.facts import (
    CPU,
    GpuCapacity,
    HostCapacity,
    JobDemand,
    Mode,
    PlacedJob,
    Placement,
)

GB = 10**9
HOST = HostCapacity(cores=4, memory_bytes=10 * GB)
GPU_HOST = HostCapacity(cores=8, memory_bytes=40 * GB, gpus=(GpuCapacity(0, 10 * GB), GpuCapacity(1, 10 * GB)))


def mode(
    cores: float = 0.25,
    bandwidth: float = 0.0,
    reading: float = 0.0,
    *,
    speed: float = 100.0,
    memory: float = 1.0,
    workers: int = 1,
) -> Mode:
    """A mode on the CPU. memory: GB."""
    return Mode(workers, 1, 1, speed, (cores, bandwidth, reading, 0.0, 0.0, 0.0), round(memory * GB))


def gpu_mode(
    gpu: float = 0.5, gpu_bandwidth: float = 0.1, *, speed: float = 400.0, memory: float = 1.0, gpu_memory: float = 2.0
) -> Mode:
    demand = (0.1, 0.05, 0.0, gpu, gpu_bandwidth, 0.05)
    return Mode(1, 1, 1, speed, demand, round(memory * GB), round(gpu_memory * GB))


def job(name: str, *modes: Mode, kind: str = "dense", seconds: float = 100.0, arrived_s: float = 0.0) -> JobDemand:
    """A job that takes `seconds` seconds alone in its fastest mode."""
    modes = modes or (mode(),)
    left = seconds * max(one.samples_per_s for one in modes)
    return JobDemand(name, kind, modes, left, arrived_s)


def placed(demand: JobDemand, at: int = 0, device: int = CPU, margin: float = 1.2, since_s: float = 0.0) -> PlacedJob:
    chosen = demand.modes[at]
    charged, charged_gpu = round(chosen.memory_bytes * margin), round(chosen.gpu_memory_bytes * margin)
    return PlacedJob(demand, Placement(at, device), charged, charged_gpu, since_s)
