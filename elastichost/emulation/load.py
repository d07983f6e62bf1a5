"""The load of an emulated job on the real host, which comes from its messages. Pure."""

from __future__ import annotations

import math

from elastichost.config.sections.schema import ResourcesSection
from elastichost.emulation.scenarios import Scenario
from elastichost.resources import bounds_of

__all__ = ["REQUEST_S", "STEP_S", "cores_needed", "shortage"]

# CPU time of all processes and their I/O threads, as measured by benchmarks/tuner/emulated/benchmark.py
REQUEST_S = 330e-6  # a request and its answer
STEP_S = 600e-6  # the rest of a batch: its commit, and its share of leases and heartbeats


def cores_needed(of: Scenario, workers: int, servers: int, worker_cores: int) -> float:
    """The number of real cores that the messages keep busy, if nothing but their own computing limits the workers."""
    threads = min(worker_cores, of.parallel_cores)
    batch_s = of.serial_s + of.sample_s * of.workload.batch_size / threads
    per_batch_s = STEP_S + 2 * servers * REQUEST_S
    return workers * per_batch_s / max(batch_s, per_batch_s)


def shortage(resources: ResourcesSection, of: Scenario, host_cores: int) -> str:
    """A warning that the host has too few cores for the largest number of workers and PS of the job file; "": it has
    enough."""
    workers, servers = bounds_of(resources.workers, 0)[1], bounds_of(resources.servers, 1)[1]
    needed = cores_needed(of, workers, servers, 1)
    if needed <= 0.6 * host_cores:
        return ""
    times = math.ceil(2 * needed / host_cores)
    return (
        f"the messages of {workers} emulated workers and {servers} PS keep about {needed:.1f} cores busy, and this "
        f"host has {host_cores}: the processes may be slower than their costs; an emulate.slowdown {times} times as "
        "high is safe"
    )
