"""Kinds of jobs: what a demand row says a job is bound by; what a kind demands, until a job is measured. Pure.

The rows here are assumed, not measured: orders of magnitude of what such jobs do, from where the time of a sample goes
in a DLRM on one core (a quarter of it in rows, the rest in the dense part) and from what readers of a remote source
leave of a core and of a GPU (7 small ones kept an H100 busy for 0.15 of the time). They decide for the first seconds
of a job only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from elastichost.tuner.colocation.facts import HOST_RESOURCES, RESOURCES

__all__ = ["KINDS", "DemandPrior", "Kind", "kind_of", "prior_of"]

Kind = Literal["input", "embedding", "dense", "balanced"]
KINDS: tuple[Kind, ...] = ("input", "embedding", "dense", "balanced")

WAITING = 0.5  # of a worker's time waiting for rows: input is what it is bound by, whatever else it does
MEMORY_BOUND = 1.0  # share of memory bandwidth over share of cores: from here on, embedding
COMPUTE_BOUND = 0.5  # up to here, dense


class _Rates(msgspec.Struct, frozen=True):
    """Of a job of a kind: the share of its own threads' time that computes; memory bandwidth that it takes by share of
    the host's cores it keeps busy; input by share of all there is. On a GPU: the host's cores by one thread; then as
    DEVICE_RESOURCES."""

    busy: float
    bandwidth: float
    input: float
    gpu: tuple[float, float, float]


# one GPU is kept busy by few jobs, one input by many: a reader that waits asks for little of it
RATES: dict[Kind, _Rates] = {
    # waits for its reader most of the time
    "input": _Rates(0.2, 0.3, 0.1, (0.05, 0.05, 0.05)),
    # gathers and scatters rows: memory is busier than the cores
    "embedding": _Rates(0.9, 1.2, 0.05, (0.4, 0.6, 0.3)),
    # matrix products, from caches
    "dense": _Rates(0.95, 0.2, 0.02, (0.8, 0.3, 0.05)),
    "balanced": _Rates(0.9, 0.7, 0.05, (0.25, 0.2, 0.15)),
}


class DemandPrior(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """demand: float [len(RESOURCES)], as of a `facts.Mode`; source: where it is from, in words."""

    kind: Kind
    demand: tuple[float, ...]
    source: str


def kind_of(demand: Sequence[float], wait_share: float = 0.0) -> Kind:
    """What a job is bound by. demand: float [len(RESOURCES)]; wait_share: of a worker's time waiting for its reader.

    A job that waits half of its time, or that asks for more of the input than of anything else, is `input`. Else it is
    how much of a memory's bandwidth it takes for what it computes: on the host or on a GPU, whichever it keeps busier.
    Raises ValueError for a row of another length."""
    if len(demand) != len(RESOURCES):
        raise ValueError(f"a demand has {len(RESOURCES)} resources, not {len(demand)}")
    cores, bandwidth, reading, gpu, gpu_bandwidth, pcie = demand
    compute, memory = (gpu, max(gpu_bandwidth, pcie)) if max(gpu, gpu_bandwidth) > cores else (cores, bandwidth)
    if wait_share >= WAITING or reading > max(compute, memory):
        return "input"
    if memory >= MEMORY_BOUND * compute and memory > 0:
        return "embedding"
    return "dense" if memory <= COMPUTE_BOUND * compute and compute > 0 else "balanced"


def prior_of(kind: Kind, cores: int, host_cores: int, is_gpu: bool = False) -> DemandPrior:
    """What a job of a kind is taken to demand until it is measured. cores: threads that compute, of host_cores; with a
    GPU the CPU only feeds it, and one thread counts. Raises ValueError without cores."""
    if cores < 1 or host_cores < 1:
        raise ValueError(f"{cores} of {host_cores} cores cannot be")
    rates = RATES[kind]
    threads = 1 if is_gpu else cores
    busy = min(1.0, rates.busy * threads / host_cores)
    host = (busy, min(1.0, rates.bandwidth * busy), rates.input)
    device = rates.gpu if is_gpu else (0.0,) * (len(RESOURCES) - len(HOST_RESOURCES))
    where = "on a GPU" if is_gpu else f"on {cores} of {host_cores} cores"
    source = f"assumed of {kind} jobs {where}, until this one is measured"
    return DemandPrior(kind, (*host, *device), source)
