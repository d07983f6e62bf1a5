"""Memory of a job over its samples: fixed tables, and dynamic ones that grow by Heaps' law. Pure.

Distinct ids after n samples are K n^beta (Heaps 1978), so dynamic rows take `growth_bytes` (n / samples)^beta.
"""

from __future__ import annotations

import math

import msgspec

from elastichost.tuner.facts import Configuration

__all__ = ["MemoryCurve"]


class MemoryCurve(msgspec.Struct, frozen=True, gc=False):
    """growth_bytes: what dynamic tables have grown to when all `samples` are trained."""

    fixed_bytes: float
    growth_bytes: float
    beta: float
    samples: float
    worker_bytes: float
    server_bytes: float

    def constant_bytes(self, configuration: Configuration) -> float:
        """Everything but dynamic rows."""
        processes = configuration.workers * self.worker_bytes + configuration.servers * self.server_bytes
        return self.fixed_bytes + processes

    def used_bytes(self, trained: float, configuration: Configuration) -> float:
        """Of all processes together, `trained` samples after the start."""
        return self.constant_bytes(configuration) + self.growth_bytes * math.pow(trained / self.samples, self.beta)

    def samples_at(self, used_bytes: float, configuration: Configuration) -> float:
        """After how many samples so much is used: 0.0 if from the start, inf if never."""
        left = used_bytes - self.constant_bytes(configuration)
        if left < 0:
            return 0.0
        if left >= self.growth_bytes:
            return math.inf
        return self.samples * math.pow(left / self.growth_bytes, 1.0 / self.beta)

    def byte_seconds(self, before: float, trained: float, seconds: float, configuration: Configuration) -> float:
        """Integral of used_bytes over `seconds` in which the samples go from `before` to `trained` at one rate."""
        constant = self.constant_bytes(configuration) * seconds
        if trained <= before:
            return constant + self.growth_bytes * math.pow(before / self.samples, self.beta) * seconds
        # with n(t) = before + rate t: the integral of (n / N)^beta dt is [n^(beta + 1)] / ((beta + 1) rate N^beta)
        power = self.beta + 1.0
        high, low = math.pow(trained / self.samples, power), math.pow(before / self.samples, power)
        return constant + self.growth_bytes * seconds * (high - low) * self.samples / (power * (trained - before))
