"""True speeds for tests: exact mean value analysis of a closed network. No model of the tuner has this form."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.jobs import SimulatedJob
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.queueing.job_speed import IterationSpeed
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, ConfigurationArray, Workload

__all__ = ["ClosedNetwork", "job"]


class ClosedNetwork(msgspec.Struct, frozen=True):
    """Workers are customers: they compute (a delay), then queue at each PS in turn (Reiser and Lavenberg 1980)."""

    workload: Workload = Workload(batch_size=1000, access="served")
    skew: float = 0.0
    serial_s: float = 0.005
    parallel_s: float = 0.05
    server_s: float = 0.004

    def speed(self, configuration: Configuration, skew: float | None = None) -> IterationSpeed:
        return _speed(self, configuration, self.skew if skew is None else skew)

    def _speed(self, configuration: Configuration, skewed: float) -> IterationSpeed:
        c = configuration
        compute_s = self.serial_s + self.parallel_s / c.worker_cores
        shares = np.full(c.servers, (1 - skewed) / c.servers)
        shares[0] += skewed
        demands = self.server_s * shares / c.server_cores
        queues, waited_s, rate = np.zeros(c.servers), demands, 0.0
        for customers in range(1, c.workers + 1):
            waited_s = demands * (1 + queues)
            rate = customers / (compute_s + waited_s.sum())
            queues = rate * waited_s
        return IterationSpeed(
            samples_per_s=float(rate * self.workload.batch_size),
            compute_s=compute_s,
            reader_s=0.0,
            exchange_s=float(waited_s.sum()),
            server_cpu_s=self.server_s,
            worker_cpu_s=self.serial_s + self.parallel_s,
            bytes_moved=1e6,
        )

    def speeds(self, configurations: ConfigurationArray, skew: float | None = None) -> npt.NDArray[np.float64]:
        rows = [Configuration(*row) for row in configurations.astype(int).tolist()]
        return np.array([self.speed(row, skew).samples_per_s for row in rows])


@lru_cache(maxsize=100_000)
def _speed(network: ClosedNetwork, configuration: Configuration, skew: float) -> IterationSpeed:
    return network._speed(configuration, skew)


def job(number: int = 0, **changes: object) -> SimulatedJob:
    """A job that one worker and one PS train in about a quarter of an hour, and that needs 4 GB at its end."""
    truth = changes.pop("truth", ClosedNetwork())
    samples = changes.pop("samples", 15_000_000)
    assert isinstance(truth, ClosedNetwork) and isinstance(samples, int)
    fields: dict[str, object] = {
        "job": number,
        "arrived_s": 0.0,
        "features": JobFeatures(family="family", user="user", batch_size=1000, samples=samples),
        "truth": truth,
        "samples": samples,
        "memory": MemoryCurve(1e9, 2e9, 0.7, float(samples), 250e6, 100e6),
        "request": Configuration(4, 2, 2, 2),
        "requested_memory_bytes": 8 * 10**9,
        "share_cores": 64,
        "cov": 0.05,
        "rho": 0.7,
        "seed": 1,
    }
    return SimulatedJob(**{**fields, **changes})  # type: ignore[arg-type]
