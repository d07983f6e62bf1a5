"""What co-location speaks of: resources, jobs' modes and their demands, what runs where, what the host has. Pure.

A demand row says which share of each resource a mode takes while the job runs alone: D[j, r] in [0, 1], 1 for all of
it. A resource is the host's (cores, memory bandwidth, input) or a GPU's; a mode on the CPU has zeros for the latter.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "CPU",
    "DEVICE_RESOURCES",
    "HOST_RESOURCES",
    "RESOURCES",
    "GpuCapacity",
    "HostCapacity",
    "JobDemand",
    "Mode",
    "PlacedJob",
    "Placement",
    "PolicyName",
    "Start",
]

HOST_RESOURCES = ("cores", "memory_bandwidth", "input")
DEVICE_RESOURCES = ("gpu", "gpu_memory_bandwidth", "pcie")
RESOURCES = HOST_RESOURCES + DEVICE_RESOURCES
CPU = -1  # the device of a placement without GPU

PolicyName = Literal["complementary", "rmixer_type", "fifo", "random", "exclusive"]


class Mode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to run a job: so many processes, on the CPU or with a GPU.

    samples_per_s: alone on the host. demand: float [len(RESOURCES)], shares of the host's and of one GPU's resources
    that it takes then. memory_bytes: peak of all its processes, rows and copies; gpu_memory_bytes: peak on its GPU."""

    workers: int
    servers: int
    worker_cores: int
    samples_per_s: float
    demand: tuple[float, ...]
    memory_bytes: int
    gpu_memory_bytes: int = 0

    @property
    def is_gpu(self) -> bool:
        return self.gpu_memory_bytes > 0

    @property
    def cores(self) -> int:
        """Threads that compute."""
        return self.workers * self.worker_cores


class JobDemand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job as the dispatcher sees it. kind: its class for feedback and for RMixer's rule, such as "input",
    "embedding", "dense". arrived_s: when it was submitted, for aging. is_measured: its demands are its own, not its
    kind's. weight: twice as much counts as two such jobs. exclusive: it ran out of memory beside others and runs alone
    this time. not_before_s: it was evicted and rests until then, unless nothing else runs."""

    job: str
    kind: str
    modes: tuple[Mode, ...]
    samples_left: float
    arrived_s: float = 0.0
    weight: float = 1.0
    is_measured: bool = False
    exclusive: bool = False
    not_before_s: float = 0.0

    @property
    def fastest(self) -> float:
        """Samples/s of its fastest mode alone on the host."""
        return max(mode.samples_per_s for mode in self.modes)


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """mode: index among the job's modes; device: index among the host's GPUs, or CPU."""

    mode: int
    device: int = CPU


class PlacedJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that runs, or is about to. charged_bytes, charged_gpu_bytes: what the ledger holds for it. is_paused: it
    keeps its memory and computes nothing."""

    demand: JobDemand
    placement: Placement
    charged_bytes: int
    charged_gpu_bytes: int = 0
    since_s: float = 0.0
    is_paused: bool = False

    @property
    def mode(self) -> Mode:
        return self.demand.modes[self.placement.mode]


class GpuCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU as CUDA numbers it, and the memory that jobs may have of it."""

    index: int
    memory_bytes: int


class HostCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all jobs together may have."""

    cores: int
    memory_bytes: int
    gpus: tuple[GpuCapacity, ...] = ()


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that is to start now: how and where, what it is charged, and why, in words. speeds: predicted speed of each
    job that then runs, as a share of what it would have alone in its mode, by name."""

    job: str
    placement: Placement
    charged_bytes: int
    charged_gpu_bytes: int
    reason: str
    speeds: dict[str, float] = {}
