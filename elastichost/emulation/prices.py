"""The costs of an emulated job: of a batch on the cores of a worker, and of a request at a PS. Pure, but the state of
random generators changes.

The equations are those of `benchmarks.simulator.queueing.fork_join`, which computes the throughput that they lead to.
"""

from __future__ import annotations

import math
import struct
from typing import Literal, NamedTuple

import numpy as np

from elastichost.emulation.scenarios import Scenario
from elastichost.errors import ProtocolError

__all__ = ["Computing", "Price", "Pricing", "Varying"]

_PRICE = struct.Struct("<5d")


class Varying:
    """A sequence of random factors: log-normal with mean 1, each correlated with the one before. cov: standard
    deviation divided by mean; autocorrelation: rho, of the logarithms of successive factors.

    x' = rho x + sqrt(1 - rho^2) z, z standard normal; factor = exp(sigma x - sigma^2 / 2), sigma^2 = log(1 + cov^2).
    """

    def __init__(self, cov: float, autocorrelation: float, generator: np.random.Generator) -> None:
        self._sigma = math.sqrt(math.log1p(cov * cov))
        self._kept = autocorrelation
        self._generator = generator
        self._drift = float(generator.standard_normal())

    def next(self) -> float:
        if self._sigma == 0.0:
            return 1.0
        fresh = math.sqrt(1.0 - self._kept * self._kept) * float(self._generator.standard_normal())
        self._drift = self._kept * self._drift + fresh
        return math.exp(self._sigma * self._drift - self._sigma * self._sigma / 2)


class Price(NamedTuple):
    """The costs of a request. sent_s: when it was sent, on the monotonic clock, which all processes of a host share;
    latency_s: in each direction; service_s: core-seconds at the PS; in_s, out_s: time that the PS' link is busy with
    the request and with the answer."""

    sent_s: float
    latency_s: float
    service_s: float
    in_s: float
    out_s: float

    def encode(self) -> bytes:
        return _PRICE.pack(*self)

    @classmethod
    def decode(cls, frame: memoryview) -> Price:
        """Raises ProtocolError when the frame has another size."""
        if frame.nbytes != _PRICE.size:
            raise ProtocolError(f"a price has {frame.nbytes} bytes instead of {_PRICE.size}")
        return cls(*_PRICE.unpack(frame))


class Computing(NamedTuple):
    """The costs of computing one batch: wall time, and CPU time of all threads."""

    wall_s: float
    cpu_s: float


class Pricing:
    """Draws the costs of one worker from its generator of random numbers."""

    def __init__(self, scenario: Scenario, generator: np.random.Generator) -> None:
        self._of = scenario
        self._generator = generator
        self._compute = Varying(scenario.compute_cov, scenario.autocorrelation, generator)
        self._reader = Varying(scenario.reader_cov, 0.0, generator)
        self._server = Varying(scenario.server_cov, 0.0, generator)

    def computing(self, samples: int, cores: int) -> Computing:
        """The computing of a batch of `samples` samples. wall = f (a + b m (1 + loss (n - 1)) / n), where f is the
        random factor, a is serial_s, b is sample_s, m is `samples`, loss is thread_loss and n = min(cores,
        parallel_cores). One thread computes part a, n threads the rest. A straggling batch takes straggle_factor times
        as long."""
        of = self._of
        threads = min(cores, of.parallel_cores)
        factor = self._compute.next()
        serial_s = factor * of.serial_s
        parallel_s = factor * of.sample_s * samples * (1.0 + of.thread_loss * (threads - 1)) / threads
        if of.straggle_probability and self._generator.random() < of.straggle_probability:
            parallel_s += (of.straggle_factor - 1.0) * (parallel_s + serial_s)
        return Computing(serial_s + parallel_s, serial_s + threads * parallel_s)

    def reading_s(self, samples: int) -> float:
        """Seconds that the reader thread needs to read a batch."""
        return self._of.reader_sample_s * samples * self._reader.next() if self._of.reader_sample_s else 0.0

    def moved_bytes(self, samples: int) -> int:
        """Bytes of a batch in each direction, between the worker and all PS."""
        workload = self._of.workload
        part = samples / workload.batch_size
        return int(self._of.unique_share * workload.row_bytes * samples + workload.dense_bytes * part)

    def request(
        self, kind: Literal["pull", "push"], samples: int, share: float, sent_s: float, *, is_dense_owner: bool
    ) -> Price:
        """The costs of a request that is sent at `sent_s`. share: the PS' share of the batch's keys."""
        of = self._of
        of_sample_s = of.pull_sample_s if kind == "pull" else of.push_sample_s
        mean_s = of.request_s + of_sample_s * samples * share
        if kind == "push" and is_dense_owner:
            mean_s += of.dense_s
        bandwidth = of.workload.bandwidth_bytes_per_s
        wire_s = self.moved_bytes(samples) * share / bandwidth if bandwidth > 0 else 0.0
        in_s, out_s = (0.0, wire_s) if kind == "pull" else (wire_s, 0.0)
        return Price(sent_s, of.latency_s, mean_s * self._server.next(), in_s, out_s)
