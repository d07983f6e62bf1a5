"""Jobs with known true costs, each with another bottleneck. Pure values.

The costs have the order of magnitude of a recommendation model's: a batch has a few thousand samples and needs tens of
milliseconds of computing and milliseconds of work at the PS.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from elastichost.tuner.facts import Workload

__all__ = ["SCENARIOS", "Scenario", "scenario"]

GIGABIT = 125e6  # bytes per second


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The true costs of a job. Times are core-seconds unless stated otherwise; a random time is given by its mean."""

    name: str
    workload: Workload
    overlap: Literal["nothing", "pulls", "both"] = "both"  # which requests are under way while a worker computes
    staleness: int = 4  # bounded mode: how many iterations a worker may be ahead of the slowest one

    # the worker, for each iteration
    serial_s: float = 0.0  # the part of computing that one thread does
    sample_s: float  # for each sample, shared by the cores of the worker
    parallel_cores: int = 64  # most cores that can share the computing
    thread_loss: float = 0.0  # n cores do the work of n / (1 + thread_loss * (n - 1))
    compute_cov: float = 0.1  # of the log-normal computing times: standard deviation divided by mean
    autocorrelation: float = 0.0  # of the logarithms of the computing times of successive iterations
    straggle_probability: float = 0.0  # probability that computing takes `straggle_factor` times as long
    straggle_factor: float = 1.0
    reader_sample_s: float = 0.0  # of the reader thread, at most two batches ahead; 0: the worker never waits for it
    reader_cov: float = 0.1

    # the PS; the share `skew` of the work on rows is done by the first PS, the rest is divided equally among all PS
    pull_sample_s: float = 0.0  # for each sample
    push_sample_s: float = 0.0  # for each sample
    request_s: float = 0.0  # for each request, in addition
    dense_s: float = 0.0  # for each push at the first PS, in addition: the update of the dense vector
    server_cov: float = 0.3
    skew: float = 0.0  # from 0 to 1
    latency_s: float = 0.0  # in each direction between a worker and a PS; wall time
    unique_share: float = 1.0  # share of `workload.row_bytes` that moves: a row that a batch needs twice moves once

    # only if all processes share a host (workload.host_cores > 0)
    memory_threads: float = 0.0  # number of computing threads that use up the memory bandwidth; 0: no limit
    memory_part: float = 0.0  # share of the computing that waits for memory
    oversubscription: float = 0.0  # relative slowdown of computing for each runnable thread per core beyond one

    @property
    def shares_host(self) -> bool:
        """All processes run on one host and share its cores."""
        return self.workload.host_cores > 0

    def worker_batch(self, workers: int) -> float:
        """Samples that one worker computes in an iteration."""
        return self.workload.batch_size / (workers if self.workload.mode == "sync" else 1)

    def shares(self, servers: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The share of each PS in the work on rows, float64 [servers]; their sum is 1."""
        shares = np.full(servers, (1.0 - self.skew) / servers)
        shares[0] += self.skew
        return shares


def _served(batch_size: int = 2048, **changes: object) -> Workload:
    """A wide and deep model on a cluster: 26 tables of dimension 16, a network of 10 Gbit/s."""
    facts = {
        "batch_size": batch_size,
        "access": "served",
        "dense_bytes": 1_000_000,
        "row_bytes": 26 * 16 * 4,
        "ids_per_sample": 26.0,
        "bandwidth_bytes_per_s": 10 * GIGABIT,
    }
    return msgspec.convert({**facts, **changes}, Workload)


def _direct(host_cores: int, batch_size: int = 2048) -> Workload:
    """The same model with rows in the shared memory of one host."""
    return Workload(
        batch_size=batch_size,
        access="direct",
        host_cores=host_cores,
        dense_bytes=1_000_000,
        row_bytes=26 * 16 * 4,
        ids_per_sample=26.0,
    )


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="compute_bound",
        workload=_served(),
        serial_s=4e-3,
        sample_s=50e-6,
        parallel_cores=6,
        thread_loss=0.03,
        compute_cov=0.15,
        autocorrelation=0.6,
        pull_sample_s=0.5e-6,
        push_sample_s=1.0e-6,
        request_s=20e-6,
        latency_s=200e-6,
        unique_share=0.5,
    ),
    Scenario(
        name="server_bound",
        workload=_served(),
        serial_s=3e-3,
        sample_s=15e-6,
        thread_loss=0.05,
        pull_sample_s=3e-6,
        push_sample_s=6e-6,
        request_s=50e-6,
        latency_s=200e-6,
        unique_share=0.6,
    ),
    Scenario(
        name="network_bound",
        workload=_served(row_bytes=26 * 64 * 4, bandwidth_bytes_per_s=10 * GIGABIT),
        serial_s=3e-3,
        sample_s=20e-6,
        thread_loss=0.04,
        pull_sample_s=1e-6,
        push_sample_s=2e-6,
        request_s=30e-6,
        latency_s=300e-6,
        overlap="pulls",
    ),
    Scenario(
        name="reader_bound",
        workload=_served(),
        serial_s=2e-3,
        sample_s=30e-6,
        reader_sample_s=9e-6,
        reader_cov=0.3,
        pull_sample_s=1.5e-6,
        push_sample_s=3e-6,
        request_s=20e-6,
        latency_s=200e-6,
        unique_share=0.5,
    ),
    Scenario(
        name="hot_server",
        workload=_served(),
        serial_s=3e-3,
        sample_s=20e-6,
        thread_loss=0.03,
        pull_sample_s=2e-6,
        push_sample_s=5e-6,
        request_s=30e-6,
        skew=0.25,
        latency_s=200e-6,
        unique_share=0.5,
    ),
    Scenario(
        name="unpipelined",
        workload=_served(batch_size=1024, bandwidth_bytes_per_s=2.5 * GIGABIT),
        overlap="nothing",
        serial_s=2e-3,
        sample_s=25e-6,
        compute_cov=0.3,
        pull_sample_s=2e-6,
        push_sample_s=4e-6,
        request_s=50e-6,
        server_cov=0.5,
        latency_s=500e-6,
        unique_share=0.6,
    ),
    Scenario(
        name="sync_stragglers",
        workload=_served(batch_size=32768, mode="sync"),
        overlap="nothing",
        serial_s=4e-3,
        sample_s=30e-6,
        thread_loss=0.03,
        compute_cov=0.15,
        straggle_probability=0.02,
        straggle_factor=3.0,
        pull_sample_s=1.5e-6,
        push_sample_s=3e-6,
        request_s=40e-6,
        latency_s=300e-6,
        unique_share=0.6,
    ),
    Scenario(
        name="bounded_noisy",
        workload=_served(mode="bounded"),
        staleness=2,
        serial_s=3e-3,
        sample_s=25e-6,
        compute_cov=0.4,
        pull_sample_s=1.5e-6,
        push_sample_s=3.5e-6,
        request_s=40e-6,
        latency_s=200e-6,
        unique_share=0.5,
    ),
    Scenario(
        name="direct_small_host",
        workload=_direct(8),
        serial_s=2e-3,
        sample_s=10e-6,
        parallel_cores=4,
        thread_loss=0.15,
        compute_cov=0.15,
        autocorrelation=0.6,
        pull_sample_s=0.1e-6,
        request_s=20e-6,
        dense_s=0.8e-3,
        latency_s=30e-6,
        memory_threads=4.0,
        memory_part=0.5,
        oversubscription=0.8,
    ),
    Scenario(
        name="served_small_host",
        workload=_served(host_cores=16, bandwidth_bytes_per_s=0.0),
        serial_s=2e-3,
        sample_s=12e-6,
        parallel_cores=4,
        thread_loss=0.1,
        reader_sample_s=1.5e-6,
        pull_sample_s=1.5e-6,
        push_sample_s=3e-6,
        request_s=60e-6,
        latency_s=100e-6,
        overlap="pulls",
        memory_threads=10.0,
        memory_part=0.4,
        oversubscription=0.5,
    ),
)


def scenario(name: str) -> Scenario:
    """The scenario with this name. Raises ValueError, which lists the names, when there is none."""
    for one in SCENARIOS:
        if one.name == name:
            return one
    raise ValueError(f"unknown scenario {name!r}: choose from {', '.join(one.name for one in SCENARIOS)}")
