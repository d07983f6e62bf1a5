"""Memory grows by Heaps' law, and its integral is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from elastichost.tuner.facts import Configuration

SHAPE = Configuration(3, 2)


def curve(beta: float = 0.7) -> MemoryCurve:
    return MemoryCurve(1e9, 4e9, beta, 1e6, worker_bytes=2e8, server_bytes=1e8)


def test_used_at_start_and_end() -> None:
    assert curve().used_bytes(0.0, SHAPE) == 1e9 + 3 * 2e8 + 2 * 1e8
    assert curve().used_bytes(1e6, SHAPE) == 1e9 + 8e8 + 4e9


@given(beta=st.floats(0.3, 1.0), share=st.floats(0.0, 0.999))
def test_samples_at_is_the_inverse(beta: float, share: float) -> None:
    memory = curve(beta)
    used = memory.used_bytes(share * 1e6, SHAPE)
    assert memory.used_bytes(memory.samples_at(used, SHAPE), SHAPE) == pytest.approx(used, rel=1e-9)


def test_samples_at_memory_that_is_never_used_or_used_from_the_start() -> None:
    assert curve().samples_at(6e9, SHAPE) == math.inf
    assert curve().samples_at(1e9, SHAPE) == 0.0


@given(beta=st.floats(0.3, 1.0), before=st.floats(0, 9e5), more=st.floats(0, 1e5), seconds=st.floats(0.1, 100))
def test_integral(beta: float, before: float, more: float, seconds: float) -> None:
    """Compares with the mean over many points. Heaps' law is steep only at 0."""
    memory = curve(beta)
    points = before + more * (np.arange(4000) + 0.5) / 4000
    mean = float(np.mean([memory.used_bytes(float(at), SHAPE) for at in points]))
    assert memory.byte_seconds(before, before + more, seconds, SHAPE) == pytest.approx(mean * seconds, rel=2e-3)
