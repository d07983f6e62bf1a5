"""The ways to start jobs: every (job, mode, device), whether it fits, its load on a GPU, whether it ends late. Pure.

Cores may be overcommitted; the predicted speeds account for that. Memory may not. A mode with more threads than the
host has cores is not a candidate, unless the job has no other mode. The memory of a GPU is that of one device; a mode
on the CPU needs only memory of the host. The file system of arenas (/dev/shm) is often smaller than the memory: a job
starts beside others only if its arena fits beside theirs, and alone in any case, because its tables take what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.tuner.colocation.facts import CPU, HostCapacity, JobDemand, PlacedJob, Placement
from elastichost.tuner.colocation.ledger import Margins, charge_of
from elastichost.tuner.colocation.speeds import DEVICE, HOST, demand_row, seconds_left, value_of, width

__all__ = ["Candidates", "FreeMemory", "bottleneck", "candidates", "fits", "free_memory", "outlasts"]

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidates:
    """c ways to start one of the jobs, by rising index of the job.

    job, mode, device: int64 [c], indices (device CPU: none). demand: float64 [c, width]. value: float64 [c], speed of
    the mode as a share of the job's fastest mode. alone_s: float64 [c], seconds that the rest of the job takes alone in
    this mode. estimate, charge: float64 [c], bytes on the host without and with the margin; estimate_gpu, charge_gpu:
    the same on the GPU. has_gpu: bool [c], the job could run on a GPU of the empty host. arena: float64 [c], bytes in
    the file system of arenas, at most all of it."""

    jobs: tuple[JobDemand, ...]
    job: Whole
    mode: Whole
    device: Whole
    demand: Floats
    value: Floats
    alone_s: Floats
    estimate: Floats
    charge: Floats
    estimate_gpu: Floats
    charge_gpu: Floats
    has_gpu: Bools
    arena: Floats

    def __len__(self) -> int:
        return len(self.job)

    def of(self, job: int) -> Whole:
        """The indices of the candidates of one job, int64. They lie side by side, so no other candidate is looked
        at."""
        begin, end = np.searchsorted(self.job, (job, job + 1)).tolist()
        return np.arange(begin, end, dtype=np.int64)

    def placement(self, candidate: int) -> Placement:
        return Placement(int(self.mode[candidate]), int(self.device[candidate]))


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Free bytes of the host and of each GPU, float64 [g]. is_empty: no job runs, so no margin is needed. arena: free
    bytes of the file system of arenas."""

    memory: float
    gpus: Floats
    is_empty: bool
    arena: float = np.inf


def candidates(
    waiting: Sequence[JobDemand], host: HostCapacity, margins: Margins, fixed_margin: float = 0.0
) -> Candidates:
    """Returns all ways to start the jobs on an empty host, by job, mode and device. fixed_margin: replaces the learned
    margins if it is not 0."""
    gpus = len(host.gpus)
    rows: list[tuple[float, ...]] = []
    demands: list[Floats] = []
    most_gpu = max((gpu.memory_bytes for gpu in host.gpus), default=0)
    for index, job in enumerate(waiting):
        runnable = _modes(job, host)
        on_gpu = [job.modes[at] for at in runnable if job.modes[at].is_gpu]
        has_gpu = any(m.gpu_memory_bytes <= most_gpu and m.memory_bytes <= host.memory_bytes for m in on_gpu)
        for at in runnable:
            mode = job.modes[at]
            charge, charge_gpu = charge_of(margins, job.kind, mode)
            if fixed_margin:
                charge = round(mode.memory_bytes * fixed_margin)
                charge_gpu = round(mode.gpu_memory_bytes * fixed_margin)
            use = (value_of(job, mode), seconds_left(job, mode))
            arena = mode.arena_bytes if host.arena_bytes is None else min(mode.arena_bytes, host.arena_bytes)
            memory = (mode.memory_bytes, charge, mode.gpu_memory_bytes, charge_gpu, arena)
            for device in range(gpus) if mode.is_gpu else (CPU,):
                rows.append((index, at, device, has_gpu, *use, *memory))
                demands.append(demand_row(mode, device, gpus))
    numbers = np.array(rows, dtype=np.float64).reshape(len(rows), 11).T
    job_index, mode_index, device_index = numbers[:3].astype(np.int64)
    value, alone_s, estimate, charge_host, estimate_gpu, charge_gpus, arenas = numbers[4:]
    demand = np.array(demands, dtype=np.float64).reshape(len(rows), width(gpus))
    return Candidates(
        jobs=tuple(waiting),
        job=job_index,
        mode=mode_index,
        device=device_index,
        demand=demand,
        value=value,
        alone_s=alone_s,
        estimate=estimate,
        charge=charge_host,
        estimate_gpu=estimate_gpu,
        charge_gpu=charge_gpus,
        has_gpu=numbers[3].astype(np.bool_),
        arena=arenas,
    )


def _modes(job: JobDemand, host: HostCapacity) -> list[int]:
    there = [index for index, mode in enumerate(job.modes) if host.gpus or not mode.is_gpu]
    return [index for index in there if job.modes[index].cores <= host.cores] or there


def free_memory(host: HostCapacity, running: Sequence[PlacedJob]) -> FreeMemory:
    """The memory that the charges of the running jobs leave, at least 0."""
    memory = host.memory_bytes - sum(one.charged_bytes for one in running)
    gpus = np.array([gpu.memory_bytes for gpu in host.gpus], dtype=np.float64)
    for one in running:
        if one.placement.device != CPU:
            gpus[one.placement.device] -= one.charged_gpu_bytes
    arena = np.inf
    if host.arena_bytes is not None:
        arena = max(0.0, float(host.arena_bytes - sum(one.mode.arena_bytes for one in running)))
    return FreeMemory(max(0.0, float(memory)), np.maximum(gpus, 0.0), not running, arena)


def fits(ways: Candidates, free: FreeMemory) -> Bools:
    """Which candidates fit, bool [c]: their charges are free, or on an empty host their estimates, and so are the bytes
    of their arenas."""
    need, need_gpu = (ways.estimate, ways.estimate_gpu) if free.is_empty else (ways.charge, ways.charge_gpu)
    # the appended value is that of the device CPU (-1), which needs no GPU memory
    free_gpu = np.append(free.gpus, np.inf)[ways.device]
    found: Bools = (need <= free.memory) & (need_gpu <= free_gpu) & (ways.arena <= free.arena)
    return found


def bottleneck(ways: Candidates, demand: Floats) -> Floats:
    """The load of the fullest resource of each candidate's GPU if it starts, float64 [c]; 0 on the CPU. The load is the
    sum of the demands on the resource. demand: float64 [n, width], of the running jobs."""
    gpus = (demand.shape[1] - HOST) // DEVICE
    load = (demand.sum(axis=0) + ways.demand)[:, HOST:].reshape(len(ways), gpus, DEVICE)
    most = np.concatenate([load.max(axis=2, initial=0.0), np.zeros((len(ways), 1))], axis=1)
    found: Floats = most[np.arange(len(ways)), ways.device]
    return found


def outlasts(ways: Candidates, own_speed: Floats, ends_s: float, work_s: Floats, worth_now: float) -> Bools:
    """Which candidates are on the CPU although their job could run on a GPU, and would end after all other running and
    waiting jobs, bool [c]. They would delay the end of the batch.

    own_speed: float64 [c], predicted speeds. ends_s: seconds until the last running job ends. work_s: float64
    [jobs + 1], seconds that each waiting job needs alone in its fastest mode, and last the sum for the running jobs.
    worth_now: how many seconds of this work the host does per second."""
    others_s = (work_s.sum() - work_s[ways.job]) / max(1.0, worth_now)
    rest_s = np.maximum(ends_s, others_s)
    found: Bools = (ways.device == CPU) & ways.has_gpu & (ways.alone_s / own_speed > rest_s)
    return found
