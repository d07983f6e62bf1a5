"""What an emulated job asks of the real host: its messages. Pure."""

from __future__ import annotations

import math

from elastichost.config.schema import ResourcesSection
from elastichost.emulation.scenarios import Scenario
from elastichost.resources import bounds_of

__all__ = ["REQUEST_S", "STEP_S", "cores_needed", "shortage"]

# CPU time of all processes and their I/O threads, as benchmarks/tuner/emulated/benchmark.py sees it
REQUEST_S = 330e-6  # a request and its answer
STEP_S = 600e-6  # a batch besides: its commit, its share of leases and heartbeats


def cores_needed(of: Scenario, workers: int, servers: int, worker_cores: int) -> float:
    """Real cores that would be busy, at the speed that the workers' computing alone allows."""
    threads = min(worker_cores, of.parallel_cores)
    batch_s = of.serial_s + of.sample_s * of.workload.batch_size / threads
    per_batch_s = STEP_S + 2 * servers * REQUEST_S
    return workers * per_batch_s / max(batch_s, per_batch_s)


def shortage(resources: ResourcesSection, of: Scenario, host_cores: int) -> str:
    """In words; "" when the host's cores suffice for the most workers and PS that the job file names."""
    workers, servers = bounds_of(resources.workers, 0)[1], bounds_of(resources.servers, 1)[1]
    needed = cores_needed(of, workers, servers, 1)
    if needed <= 0.6 * host_cores:
        return ""
    times = math.ceil(2 * needed / host_cores)
    return (
        f"{workers} emulated workers and {servers} PS keep about {needed:.1f} cores busy with messages, this host has "
        f"{host_cores}: they will be slower than their costs say; an emulate.slowdown {times} times as high is safe"
    )
