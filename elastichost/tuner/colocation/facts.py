"""The common values of co-location: resources, modes of jobs and their demands, placements, the host. Pure.

A demand row contains the share of each resource that a mode uses while the job runs alone: D[j, r] in [0, 1], 1 for all
of it. Resources belong to the host (cores, memory bandwidth, input) or to a GPU; a mode on the CPU has zeros for those
of the GPU.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "CPU",
    "DEVICE_RESOURCES",
    "HOST_RESOURCES",
    "RESOURCES",
    "Basis",
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

# Where the share of a resource comes from. measured: from counters of this job or its twins. estimated: computed from
# sizes in the job file, or from the kind of the job. unlimited: nothing shows that jobs limit each other there.
Basis = Literal["measured", "estimated", "unlimited"]
PolicyName = Literal["complementary", "rmixer_type", "fifo", "random", "exclusive"]


class Mode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to run a job: a number of processes and threads, on the CPU or with a GPU.

    samples_per_s: speed alone on the host. demand: float [len(RESOURCES)], shares of the resources of the host and of
    one GPU that it uses then. memory_bytes: peak of all its processes, rows and copies. gpu_memory_bytes: peak on its
    GPU; 0: a mode on the CPU. arena_bytes: the part of memory_bytes that lies in the file system of arenas."""

    workers: int
    servers: int
    worker_cores: int
    samples_per_s: float
    demand: tuple[float, ...]
    memory_bytes: int
    gpu_memory_bytes: int = 0
    arena_bytes: int = 0

    @property
    def is_gpu(self) -> bool:
        return self.gpu_memory_bytes > 0

    @property
    def cores(self) -> int:
        """The number of computing threads."""
        return self.workers * self.worker_cores


class JobDemand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job for dispatching.

    kind: its class, used by feedback and by RMixer's rule: "input", "embedding", "dense" or "balanced". arrived_s: time
    of its submission. is_measured: its demands were measured; False: they are those assumed for its kind. weight: a job
    with weight 2 counts like two jobs with weight 1. exclusive: it ran out of memory beside others, and must run alone
    this time. not_before_s: it was evicted, and does not start before this time unless no other job runs. basis: of its
    demands, [len(RESOURCES)]; (): not told. waits_for_unknown: it was seen to wait for the bytes of a source of which
    no capacity is known."""

    job: str
    kind: str
    modes: tuple[Mode, ...]
    samples_left: float
    arrived_s: float = 0.0
    weight: float = 1.0
    is_measured: bool = False
    exclusive: bool = False
    not_before_s: float = 0.0
    basis: tuple[Basis, ...] = ()
    waits_for_unknown: bool = False

    @property
    def fastest(self) -> float:
        """Samples/s of its fastest mode, alone on the host."""
        return max(mode.samples_per_s for mode in self.modes)


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a job runs. mode: index among its modes. device: index among the GPUs of the host, or CPU."""

    mode: int
    device: int = CPU


class PlacedJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that runs or is being started. charged_bytes, charged_gpu_bytes: its charges in the ledger. since_s: time
    of its start. is_paused: it keeps its memory and computes nothing."""

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
    """One GPU by its CUDA index, and the bytes of its memory that jobs may use."""

    index: int
    memory_bytes: int


class HostCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cores, memory and GPUs that all jobs together may use. arena_bytes: of the file system in which their arenas
    lie; None: not known, and nothing is compared with it."""

    cores: int
    memory_bytes: int
    gpus: tuple[GpuCapacity, ...] = ()
    arena_bytes: int | None = None


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision to start a job: its placement, its charges, and the reason. speeds: job -> predicted speed of each job
    that then runs, as a share of its speed alone in its mode."""

    job: str
    placement: Placement
    charged_bytes: int
    charged_gpu_bytes: int
    reason: str
    speeds: dict[str, float] = {}
