"""The rate that a worker sends with its requests for leases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.worker.meter import StepMeter

BATCH: Any = SimpleNamespace(samples=SimpleNamespace(size=100), lookup_s=0.0, values=[1])


def test_waiting_for_a_lease_does_not_lower_the_rate() -> None:
    _, after = StepMeter(0.0, steps=1, samples=100, wait_input_s=3.0).beat(5.0, 0, 0, 0.0)
    assert after.rate == 50.0


def test_waiting_for_the_reader_is_part_of_the_rate() -> None:
    """If it were left out, a worker that waits for its input would get leases that last for minutes."""
    sample, after = StepMeter(0.0, steps=1, samples=100, wait_input_s=4.5, wait_reader_s=4.0).beat(5.0, 0, 0, 4.0)
    assert after.rate == 100 / 4.5
    assert (sample.wait_input_s, sample.read_s) == (4.5, 4.0)


def test_cpu_time_of_the_training_thread_is_summed_or_unknown() -> None:
    meter = StepMeter(0.0)
    assert meter.beat(1.0, 0, 0, 0.0)[0].training_cpu_s is None
    for _ in range(2):
        meter.count(BATCH, 0.5, compute_s=0.3, push_s=0.1, training_cpu_s=0.25)
    assert meter.beat(1.0, 0, 0, 0.0)[0].training_cpu_s == pytest.approx(0.5)
    other = StepMeter(0.0)
    other.count(BATCH, 0.5, compute_s=0.3, push_s=0.1, training_cpu_s=None)
    assert other.beat(1.0, 0, 0, 0.0)[0].training_cpu_s is None
