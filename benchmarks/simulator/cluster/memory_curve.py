"""The memory of a job over its samples: fixed tables, and dynamic tables that grow by Heaps' law. Pure.

The number of distinct ids after n samples is K n^beta (Heaps 1978). So dynamic rows take growth_bytes (n /
samples)^beta bytes after n of `samples` samples.
"""

from __future__ import annotations

import math

import msgspec

from elastichost.tuner.facts import Configuration

__all__ = ["MemoryCurve"]


class MemoryCurve(msgspec.Struct, frozen=True, gc=False):
    """The memory curve of one job. growth_bytes: bytes of dynamic tables when all `samples` samples are trained.
    worker_bytes, server_bytes: private memory of each worker and PS."""

    fixed_bytes: float
    growth_bytes: float
    beta: float
    samples: float
    worker_bytes: float
    server_bytes: float

    def constant_bytes(self, configuration: Configuration) -> float:
        """Bytes of everything except dynamic rows."""
        processes = configuration.workers * self.worker_bytes + configuration.servers * self.server_bytes
        return self.fixed_bytes + processes

    def used_bytes(self, trained: float, configuration: Configuration) -> float:
        """Bytes of all processes together after `trained` samples."""
        return self.constant_bytes(configuration) + self.growth_bytes * math.pow(trained / self.samples, self.beta)

    def samples_at(self, used_bytes: float, configuration: Configuration) -> float:
        """The number of samples after which `used_bytes` are used; 0.0: from the start; inf: never."""
        left = used_bytes - self.constant_bytes(configuration)
        if left < 0:
            return 0.0
        if left >= self.growth_bytes:
            return math.inf
        return self.samples * math.pow(left / self.growth_bytes, 1.0 / self.beta)

    def byte_seconds(self, before: float, trained: float, seconds: float, configuration: Configuration) -> float:
        """The integral of used_bytes over `seconds` seconds in which the job trains from `before` to `trained` samples
        at a constant rate, in byte-seconds."""
        constant = self.constant_bytes(configuration) * seconds
        if trained <= before:
            return constant + self.growth_bytes * math.pow(before / self.samples, self.beta) * seconds
        # with n(t) = before + rate t: the integral of (n / N)^beta dt is [n^(beta + 1)] / ((beta + 1) rate N^beta)
        power = self.beta + 1.0
        high, low = math.pow(trained / self.samples, power), math.pow(before / self.samples, power)
        return constant + self.growth_bytes * seconds * (high - low) * self.samples / (power * (trained - before))
