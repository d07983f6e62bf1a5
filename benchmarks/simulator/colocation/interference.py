"""The true speeds of jobs that share a host: mean value analysis of a closed network. Pure.

Every job is two customers that never leave: its reader, and its step (one thread that feeds a GPU, or several threads
that compute). Customers move between stations: the cores, the host's memory bandwidth, its input, and for each GPU the
link and the multiprocessors. N[i, r] is the mean number of threads of customer i at station r, and o[i, r] the share of
the station that one of these threads can use. The time of customer j there is multiplied by

    f[j, r] = 1 + E[max(0, o[j, r] + S - 1)],    S = sum over the others i of o[i, r] * (number of threads of i there)

The threads are there at random and independently of each other (Bard 1979, Schweitzer 1979: a customer that arrives
meets the mean number of the others; here without itself). S is taken as normal. The expectation lies between max(0, o +
E[S] - 1) and E[S], because o <= 1. Where o = 1 (a GPU on which processes take turns, a link), f = 1 + S, the usual mean
value analysis. Then

    T = (read^p + step^p)^(1/p),    read, step: sums over stations of time * f,    N[j, r] = time * f / T

is solved by iteration. f[j] is at least the sum of N o over all customers, so no station does more than it can. The
truth conserves capacity as the model of the policies does. Four effects are in no demand row: jobs wait for each other
before a station is full; a slow reader hides a slower step, and a slow step a slower reader; threads that wait for
memory hold their cores; the costs of caches and context switches differ by pair of kinds.

Assumed: a job with a lowered weight has the weight of nice 10 on the cores, which counts only while no core is idle.
Kernels use shares of a GPU's memory bandwidth only with MPS, where they overlap. Readers, and jobs on a GPU, need no
memory bandwidth of the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from benchmarks.simulator.cluster.random_streams import generator
from benchmarks.simulator.colocation import calibration
from benchmarks.simulator.colocation.jobs import JobFamily, JobMode, SimulatedHost
from elastichost.tuner.colocation.facts import CPU
from elastichost.tuner.colocation.kinds import KINDS

__all__ = ["LOWERED_WEIGHT", "ComputingJob", "InterferenceModel", "PairCosts", "SoloSpeed", "draw_pair_costs"]

Floats = npt.NDArray[np.float64]
LOWERED_WEIGHT = 110 / 1024  # Linux: weight of nice 10 over that of nice 0
SWEEPS, STILL = 200, 1e-5
TINY = 1e-12


@dataclass(frozen=True)
class PairCosts:
    """The costs of caches and context switches of a kind beside another, float64 [kinds, kinds]: first index the kind
    that is slower, second index the kind beside it."""

    cpu: Floats
    gpu: Floats


def draw_pair_costs(seed: int) -> PairCosts:
    """Draws log-normal costs around `calibration.PAIR_CPU` and `calibration.PAIR_GPU`. They are not symmetric."""
    random = generator(seed, "host", 0)
    cpu, gpu = np.exp(calibration.PAIR_LOG_SD * random.standard_normal((2, len(KINDS), len(KINDS))))
    return PairCosts(calibration.PAIR_CPU * cpu, calibration.PAIR_GPU * gpu)


@dataclass(frozen=True, slots=True)
class ComputingJob:
    """A job that computes. device: index among the GPUs, or CPU."""

    family: JobFamily
    size: JobMode
    device: int = CPU
    is_lowered: bool = False


@dataclass(frozen=True, slots=True)
class SoloSpeed:
    """The speed of a family in one of its sizes, alone on the host.

    demand: busy shares of all resources as a meter reads them; for the GPU the share of time in which kernels run.
    used: shares of the capacity of each resource; differs from demand on a GPU with MPS, where only the multiprocessors
    that are filled count. wait_share: share of the step's time that waits for the reader.
    """

    samples_per_s: float
    demand: tuple[float, ...]
    used: tuple[float, ...]
    wait_share: float


# The activities of a thread. With MPS a kernel needs both multiprocessors (KERNEL) and memory bandwidth (BANDWIDTH).
READ, STEP, INPUT, STALLED, COPY, KERNEL, BANDWIDTH = range(7)
AT_CORES, AT_HOST, AT_GPU = slice(READ, INPUT), slice(READ, COPY), slice(COPY, BANDWIDTH + 1)


@dataclass(frozen=True, slots=True)
class _Network:
    """The arrays of n jobs. time: seconds of a sample that one thread spends at each station, float64 [n, 7] (STEP
    without the wait for memory). wait: seconds of a sample that the reader waits for a remote source, float64 [n].
    share: share of the station that one thread can use; threads: largest number of the job's threads there; both
    float64 [n, 7]. weight: on the cores, float64 [n]. same: 1 for two jobs on the same GPU, float64 [n, n]. beside_cpu,
    beside_gpu: costs of the pairs, 0 for a job with itself, float64 [n, n]."""

    time: Floats
    wait: Floats
    share: Floats
    threads: Floats
    weight: Floats
    same: Floats
    beside_cpu: Floats
    beside_gpu: Floats


class InterferenceModel:
    """The true speeds of jobs on one host. pairs: None: caches and context switches cost nothing."""

    def __init__(self, site: SimulatedHost, pairs: PairCosts | None = None) -> None:
        none = np.zeros((len(KINDS), len(KINDS)))
        self._site, self._pairs = site, pairs or PairCosts(none, none)
        self._alone: dict[tuple[int, JobMode], SoloSpeed] = {}

    def alone(self, family: JobFamily, size: JobMode) -> SoloSpeed:
        """The speed of a family alone on the host. A size with a GPU runs on the first GPU; all GPUs are equal."""
        key = (family.family, size)
        if key not in self._alone:
            self._alone[key] = self._by_itself(ComputingJob(family, size, 0 if size.is_gpu else CPU))
        return self._alone[key]

    def rates(self, placed: Sequence[ComputingJob]) -> Floats:
        """Returns the speeds of all jobs beside each other in samples/s, float64 [n]. No speed is above that of the job
        alone."""
        if not placed:
            return np.zeros(0)
        most = np.array([self.alone(one.family, one.size).samples_per_s for one in placed])
        rate, _, _ = self._solved(self._network(placed))
        found: Floats = np.minimum(most, rate)
        return found

    def _by_itself(self, placed: ComputingJob) -> SoloSpeed:
        network = self._network([placed])
        rates, there, step_s = self._solved(network)
        rate, threads, share = float(rates[0]), there[0], network.share[0]
        kernel_s, copy_s = placed.family.costs.kernel, placed.family.costs.copy
        host = (
            min(1.0, float(threads[READ] + threads[STEP]) / self._site.room.cores),
            min(1.0, float(threads[STALLED] * share[STALLED])),
            rate * placed.family.costs.read_input * float(share[INPUT]),
        )
        waits = max(0.0, 1.0 - rate * float(step_s[0]))
        if not placed.size.is_gpu:
            nothing = (0.0,) * 3
            return SoloSpeed(rate, (*host, *nothing), (*host, *nothing), waits)
        busy, rest = rate * kernel_s, (rate * kernel_s * placed.family.costs.gpu_bandwidth, rate * copy_s)
        return SoloSpeed(rate, (*host, busy, *rest), (*host, busy * float(share[KERNEL]), *rest), waits)

    def _network(self, placed: Sequence[ComputingJob]) -> _Network:
        cores = self._site.room.cores
        rows = [_row(one, cores, self._site.has_mps) for one in placed]
        time, share, threads = np.array(rows, dtype=np.float64).transpose(1, 0, 2)
        weight = np.array([LOWERED_WEIGHT if one.is_lowered else 1.0 for one in placed])
        device = np.array([one.device for one in placed])
        kind = np.array([KINDS.index(one.family.kind) for one in placed])
        same = ((device[:, None] == device) & (device != CPU)).astype(np.float64)
        others = 1.0 - np.eye(len(placed))
        beside_cpu = self._pairs.cpu[np.ix_(kind, kind)] * others
        beside_gpu = self._pairs.gpu[np.ix_(kind, kind)] * others * same
        wait = np.array([one.family.costs.read_wait for one in placed])
        return _Network(time, wait, share, threads, weight, same, beside_cpu, beside_gpu)

    def _solved(self, network: _Network) -> tuple[Floats, Floats, Floats]:
        """Returns samples/s, float64 [n]; threads at each station, float64 [n, 7]; seconds of a sample's step, float64
        [n]."""
        there, rate = np.zeros_like(network.time), np.zeros(len(network.wait))
        for _ in range(SWEEPS):
            before = rate
            rate, there, step_s = self._swept(network, there)
            if np.abs(rate - before).max() <= STILL * rate.max():
                break
        return rate, there, step_s

    def _swept(self, network: _Network, there: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns the values of `_solved` after one more iteration. there: threads at each station, float64 [n, 7]."""
        stretch = self._stretched(network, there)
        time = network.time * stretch
        # threads that wait for memory hold their cores
        time[:, STEP] = (network.time[:, STEP] + time[:, STALLED]) * stretch[:, STEP]
        read_s = time[:, READ] + network.wait + time[:, INPUT]
        step_s = time[:, STEP] / network.threads[:, STEP] + time[:, COPY] + time[:, KERNEL]
        longest = np.maximum(read_s, step_s)
        shorter = np.minimum(read_s, step_s) / longest
        rate = 1.0 / (longest * (1.0 + shorter**calibration.PIPELINE) ** (1.0 / calibration.PIPELINE))
        return rate, rate[:, None] * time, step_s

    def _stretched(self, network: _Network, there: Floats) -> Floats:
        """The factors f, float64 [n, 7], including the costs of caches and context switches."""
        asked = there * network.share
        spread = asked * network.share * (1 - np.minimum(1.0, there / network.threads))
        mean, variance = _others(network, asked), _others(network, spread)
        stretch = 1 + _overload(network.share, mean, variance)
        if (network.weight < 1).any():
            stretch[:, AT_CORES] = _by_weight(network, asked, mean, variance)
        # with MPS the scarcer of multiprocessors and bandwidth limits a kernel
        stretch[:, KERNEL] = np.maximum(stretch[:, KERNEL], stretch[:, BANDWIDTH])
        if not self._site.has_mps:
            stretch[:, KERNEL] *= 1 + calibration.GPU_SWITCH * np.minimum(1.0, mean[:, KERNEL])
        kernels = there[:, KERNEL]
        stretch[:, KERNEL] *= 1 + network.beside_gpu @ (kernels / np.maximum(1.0, network.same @ kernels))
        wanted = (there[:, READ] + there[:, STEP]) / self._site.room.cores
        crowd = float(wanted.sum())
        caches = network.beside_cpu @ (wanted / max(1.0, crowd))
        stretch[:, (READ, STEP)] *= (1 + caches + calibration.CPU_SWITCH * min(1.0, max(0.0, crowd - 1.0)))[:, None]
        return stretch


def _row(placed: ComputingJob, cores: int, has_mps: bool) -> tuple[tuple[float, ...], ...]:
    """Returns time, share and threads of one job at each station, as in `_Network`."""
    costs, size = placed.family.costs, placed.size
    stalled = 1.0 / (calibration.STALLED_THREADS * cores)
    if size.is_gpu:
        filled, bandwidth = (costs.occupancy, costs.gpu_bandwidth) if has_mps else (1.0, 0.0)
        step = (costs.launch, 0.0, costs.copy, costs.kernel, costs.kernel)
    else:
        filled, bandwidth = 0.0, 0.0
        compute = costs.compute * (1 + calibration.THREAD_OVERHEAD * (size.threads - 1))
        step = (compute * (1 - costs.stall), compute * costs.stall, 0.0, 0.0, 0.0)
    launching, waiting, *device = step
    time = (costs.read_cpu, launching, costs.read_input, waiting, *device)
    share = (1.0 / cores, 1.0 / cores, costs.input_share, stalled, 1.0, filled, bandwidth)
    threads = float(1 if size.is_gpu else size.threads)
    return time, share, (1.0, threads, 1.0, threads, 1.0, 1.0, 1.0)


def _others(network: _Network, own: Floats) -> Floats:
    """Sums of `own` that one thread of each job meets at each station, float64 [n, 7]: over all threads except itself.
    own: values of each job at each station, float64 [n, 7]."""
    found = np.empty_like(own)
    found[:, AT_HOST] = own[:, AT_HOST].sum(axis=0)
    found[:, (READ, STEP)] = found[:1, (READ, STEP)].sum()
    found[:, AT_GPU] = network.same @ own[:, AT_GPU]
    return np.maximum(0.0, found - own / network.threads)


def _by_weight(network: _Network, asked: Floats, mean: Floats, variance: Floats) -> Floats:
    """The factors f at the cores, float64 [n, 2], where jobs have different weights. While all cores are busy, jobs get
    shares in proportion to their weights: a job with half the weight of another meets it twice. While a core is idle,
    no job waits."""
    share, weight = network.share[:, AT_CORES], network.weight[:, None]
    met = _others(network, asked * weight)[:, AT_CORES] / weight
    met_variance = variance[:, AT_CORES] * (met / np.maximum(mean[:, AT_CORES], TINY)) ** 2
    excess = share + mean[:, AT_CORES] - 1
    full = np.minimum(1.0, 2 * ndtr(excess / np.sqrt(np.maximum(variance[:, AT_CORES], TINY))))
    usual = 1 + _overload(share, met, met_variance)
    found: Floats = np.where(weight < 1, 1 + np.maximum(0.0, share + met - 1) * full, usual)
    return found


def _overload(own: Floats, mean: Floats, variance: Floats) -> Floats:
    """E[max(0, own + S - 1)] for a normal S, limited to [max(0, own + mean - 1), mean of S]."""
    excess = own + mean - 1.0
    sd = np.sqrt(np.maximum(variance, TINY))
    z = excess / sd
    loss = sd * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) + excess * ndtr(z)
    least = np.maximum(0.0, excess)
    found: Floats = np.clip(loss, least, np.maximum(mean, least))
    return found
