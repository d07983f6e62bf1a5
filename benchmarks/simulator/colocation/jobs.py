"""Batches of jobs for one host with their true values: costs of a sample, sizes, growth of memory. Pure, by seed.

Jobs come in families, as in a search for parameters: the job files of "twins" differ only in name, seed and length.
What the dispatcher measures of one job is known of its twins. A job can run on one GPU or on 1, 2, 4 or 8 threads of
the CPU; in every mode one more thread reads its input.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np

from benchmarks.simulator.cluster.calibration import HEAPS_BETA
from benchmarks.simulator.cluster.random_streams import generator
from benchmarks.simulator.colocation import calibration
from elastichost.tuner.colocation.facts import GpuCapacity, HostCapacity
from elastichost.tuner.colocation.kinds import KINDS, Kind

__all__ = ["MIXES", "SITES", "JobBatch", "JobFamily", "JobMode", "MixName", "QueuedJob", "SimulatedHost", "draw_batch"]

GB = calibration.GB
MixName = Literal["input_bound", "balanced", "dense_bound"]
# shares of kinds, in the order of KINDS: input, embedding, dense, balanced; input_bound is RMixer's setting
MIXES: dict[MixName, tuple[float, ...]] = {
    "input_bound": (0.6, 0.15, 0.1, 0.15),
    "balanced": (0.25, 0.25, 0.25, 0.25),
    "dense_bound": (0.1, 0.1, 0.7, 0.1),
}


class SimulatedHost(msgspec.Struct, frozen=True):
    """The host. room: its capacity. has_mps: kernels of several processes overlap on a GPU; False: they take turns."""

    room: HostCapacity
    has_mps: bool = False


def _site(cores: int, memory: int, gpus: int) -> SimulatedHost:
    return SimulatedHost(HostCapacity(cores, memory * GB, tuple(GpuCapacity(index, 16 * GB) for index in range(gpus))))


# assumed: hosts of RMixer's class by number of GPUs
SITES: dict[int, SimulatedHost] = {1: _site(16, 64, 1), 4: _site(32, 128, 4)}


class JobMode(msgspec.Struct, frozen=True):
    """The true values of a mode. threads: threads that compute. host_bytes, gpu_bytes: peaks."""

    threads: int
    is_gpu: bool
    host_bytes: float
    gpu_bytes: float = 0.0


class JobFamily(msgspec.Struct, frozen=True):
    """The common values of a family's jobs. costs: of a sample, as in `calibration.SampleCosts`, in seconds. filling,
    beta: memory after a share p of the training is (1 - filling + filling p^beta) of the memory after all of it.
    estimate: estimated / true peak."""

    family: int
    kind: Kind
    costs: calibration.SampleCosts
    sizes: tuple[JobMode, ...]
    filling: float
    beta: float
    estimate: float

    def share_of_peak(self, progress: float) -> float:
        """Memory in use / peak. progress: trained share; from 1 on the job is evaluated, and its memory is at its
        peak."""
        if progress >= 1.0:
            return 1.0
        filled = 1 - self.filling + self.filling * max(0.0, progress) ** self.beta
        return float(filled / (1 + calibration.EVALUATION_BYTES))

    @property
    def mean_share_of_peak(self) -> float:
        """The mean of `share_of_peak` over the work of a job, including its evaluation."""
        training = (1 - self.filling + self.filling / (1 + self.beta)) / (1 + calibration.EVALUATION_BYTES)
        return (training + calibration.EVALUATION) / (1 + calibration.EVALUATION)


class QueuedJob(msgspec.Struct, frozen=True):
    """A job in the queue. lasts_s: seconds alone in its fastest mode, from its first sample to the end of its
    evaluation."""

    job: str
    index: int
    family: JobFamily
    lasts_s: float


class JobBatch(msgspec.Struct, frozen=True):
    """Jobs that are submitted together, in the order of the queue."""

    seed: int
    mix: MixName
    site: SimulatedHost
    jobs: tuple[QueuedJob, ...]


def draw_batch(seed: int, mix: MixName, site: SimulatedHost, count: int, families: int | None = None) -> JobBatch:
    """Draws a batch of `count` jobs. The same arguments give the same batch; MPS on the GPUs does not change the jobs.
    families: number of families; None: a third of the number of jobs."""
    families = max(1, families if families is not None else count // 3)
    shared = generator(seed, "job", 0)
    kinds = shared.permutation(_kinds(mix, families)).tolist()
    known = [_family(generator(seed, "job", 1 + at), at, KINDS[kind], site.room) for at, kind in enumerate(kinds)]
    # every family has jobs, so that the shares of kinds are those of the mix
    members = shared.permutation(np.arange(count) % families).tolist()
    jobs = [_job(shared, index, known[member]) for index, member in enumerate(members)]
    return JobBatch(seed, mix, site, tuple(jobs))


def _kinds(mix: MixName, count: int) -> list[int]:
    """The index of a kind for each family; shares are rounded by the method of largest remainders."""
    exact = np.array(MIXES[mix]) * count
    whole = np.floor(exact).astype(int)
    for kind in np.argsort(-(exact - whole), kind="stable")[: count - int(whole.sum())].tolist():
        whole[kind] += 1
    return [kind for kind, times in enumerate(whole.tolist()) for _ in range(times)]


def _job(random: np.random.Generator, index: int, family: JobFamily) -> QueuedJob:
    low, high = calibration.JOB_RANGE_S
    lasts_s = calibration.JOB_MEDIAN_S * math.exp(calibration.JOB_LOG_SD * random.standard_normal())
    return QueuedJob(f"{family.kind}-{index:02}", index, family, min(max(lasts_s, low), high))


def _family(random: np.random.Generator, family: int, kind: Kind, room: HostCapacity) -> JobFamily:
    reference = calibration.REFERENCES[kind]
    factors = np.exp(calibration.COST_LOG_SD * random.standard_normal(11)).tolist()
    costs = calibration.SampleCosts(
        read_cpu=reference.read_cpu * factors[0],
        read_wait=reference.read_wait * factors[1],
        read_input=reference.read_input * factors[2],
        launch=reference.launch * factors[3],
        copy=reference.copy * factors[4],
        kernel=reference.kernel * factors[5],
        occupancy=min(1.0, reference.occupancy * factors[6]),
        gpu_bandwidth=min(1.0, reference.gpu_bandwidth * factors[7]),
        compute=reference.compute * factors[8],
        stall=min(0.8, reference.stall * factors[9]),
        table_bytes=reference.table_bytes * factors[10] ** (calibration.TABLE_LOG_SD / calibration.COST_LOG_SD),
    )
    lies = random.random() < calibration.LIES
    lie = random.uniform(*calibration.LIE_FACTOR)
    error = math.exp(calibration.ESTIMATE_LOG_SD * random.standard_normal())
    return JobFamily(
        family=family,
        kind=kind,
        costs=costs,
        sizes=_sizes(costs.table_bytes, room),
        filling=random.uniform(*calibration.FILLING),
        beta=random.uniform(*HEAPS_BETA),
        estimate=error / lie if lies else error,
    )


def _sizes(table_bytes: float, room: HostCapacity) -> tuple[JobMode, ...]:
    """The modes of a family that fit the host: threads on the CPU in ascending order, the GPU last."""
    found = [
        JobMode(threads, False, calibration.PROCESS_BYTES * (1 + threads) + table_bytes)
        for threads in calibration.MODE_THREADS
        if threads <= room.cores
    ]
    most = max((gpu.memory_bytes for gpu in room.gpus), default=0)
    on_gpu = calibration.CONTEXT_BYTES + calibration.ACTIVATION_BYTES + table_bytes
    if on_gpu <= calibration.MOST_OF_A_GPU * most:
        found.append(JobMode(1, True, calibration.GPU_PROCESS_BYTES, on_gpu))
    return tuple(found)
