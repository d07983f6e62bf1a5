"""Kinds of jobs: the classification of a measured demand row, and assumed demand rows before a measurement. Pure.

The rows here are assumed, not measured. They are orders of magnitude, derived from two measurements: the time of a
sample of a DLRM on one core (a quarter of it in rows, the rest in the dense part), and the cores and GPU time of jobs
that read a remote source (7 small ones kept an H100 busy for 0.15 of the time). They are used only for the first
seconds of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from elastichost.tuner.colocation.facts import HOST_RESOURCES, RESOURCES

__all__ = ["KINDS", "DemandPrior", "Kind", "kind_of", "prior_of"]

Kind = Literal["input", "embedding", "dense", "balanced"]
KINDS: tuple[Kind, ...] = ("input", "embedding", "dense", "balanced")

WAITING = 0.5  # a job is "input" if its workers wait for their reader for at least this share of their time
MEMORY_BOUND = 1.0  # least ratio of memory bandwidth to computing of an "embedding" job
COMPUTE_BOUND = 0.5  # largest ratio of memory bandwidth to computing of a "dense" job


class _Rates(msgspec.Struct, frozen=True):
    """Assumed demands of a kind. busy: share of its threads' time in which they compute. bandwidth: share of the memory
    bandwidth, per share of the host's cores that it keeps busy. input: share of the input. gpu: shares of
    DEVICE_RESOURCES if it runs on a GPU; it then keeps cores busy with one thread."""

    busy: float
    bandwidth: float
    input: float
    gpu: tuple[float, float, float]


# few jobs saturate a GPU, many jobs are needed to saturate the input: a reader that waits uses little of it
RATES: dict[Kind, _Rates] = {
    # workers wait for their reader most of the time
    "input": _Rates(0.2, 0.3, 0.1, (0.05, 0.05, 0.05)),
    # gathers and scatters rows: the memory is busier than the cores
    "embedding": _Rates(0.9, 1.2, 0.05, (0.4, 0.6, 0.3)),
    # matrix products with data in caches
    "dense": _Rates(0.95, 0.2, 0.02, (0.8, 0.3, 0.05)),
    "balanced": _Rates(0.9, 0.7, 0.05, (0.25, 0.2, 0.15)),
}


class DemandPrior(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The assumed demand of a kind. demand: float [len(RESOURCES)], as in `facts.Mode`. source: a sentence about its
    origin."""

    kind: Kind
    demand: tuple[float, ...]
    source: str


def kind_of(demand: Sequence[float], wait_share: float = 0.0) -> Kind:
    """Classifies a job. demand: float [len(RESOURCES)]. wait_share: share of a worker's time in which it waits for its
    reader.

    A job is "input" if it waits at least half of the time, or if its largest demand is that on the input. Otherwise the
    ratio of its memory bandwidth to its computing decides between "embedding", "dense" and "balanced", on the host or
    on the GPU, whichever it keeps busier. Raises ValueError for a row of another length."""
    if len(demand) != len(RESOURCES):
        raise ValueError(f"a demand row must have {len(RESOURCES)} resources, not {len(demand)}")
    cores, bandwidth, reading, gpu, gpu_bandwidth, pcie = demand
    compute, memory = (gpu, max(gpu_bandwidth, pcie)) if max(gpu, gpu_bandwidth) > cores else (cores, bandwidth)
    if wait_share >= WAITING or reading > max(compute, memory):
        return "input"
    if memory >= MEMORY_BOUND * compute and memory > 0:
        return "embedding"
    return "dense" if memory <= COMPUTE_BOUND * compute and compute > 0 else "balanced"


def prior_of(kind: Kind, cores: int, host_cores: int, is_gpu: bool = False) -> DemandPrior:
    """The assumed demand of a job of a kind before it is measured. cores: its computing threads, of the host_cores
    cores of the host. With a GPU the CPU only feeds the GPU, and one thread is counted. Raises ValueError without
    cores."""
    if cores < 1 or host_cores < 1:
        raise ValueError(f"cores={cores} of host_cores={host_cores}: both must be at least 1")
    rates = RATES[kind]
    threads = 1 if is_gpu else cores
    busy = min(1.0, rates.busy * threads / host_cores)
    host = (busy, min(1.0, rates.bandwidth * busy), rates.input)
    device = rates.gpu if is_gpu else (0.0,) * (len(RESOURCES) - len(HOST_RESOURCES))
    where = "on a GPU" if is_gpu else f"on {cores} of {host_cores} cores"
    source = f"assumed for {kind} jobs {where} until this job is measured"
    return DemandPrior(kind, (*host, *device), source)
