"""The figures of the memory-estimate benchmark."""

from __future__ import annotations

from typing import cast

import pytest

from benchmarks.harness.interleave import Measurement
from benchmarks.harness.outcome import Outcome
from benchmarks.memory_estimate.benchmark import ARM, benchmark_of, figures_of
from benchmarks.memory_estimate.footprint import Footprint
from benchmarks.memory_estimate.job_runner import JobRunner, SeenJob
from benchmarks.memory_estimate.job_shapes import JobShape
from elastichost.tuner.memory.peak_memory import MemoryEstimate, MemoryPart


def seen(predicted: int, observed: int) -> SeenJob:
    estimate = MemoryEstimate("training", (MemoryPart("rows", predicted * 10**6),))
    return SeenJob(JobShape(f"{predicted}/{observed}"), estimate, Footprint(0, 0, observed * 10**6, {}))


def test_figures_are_of_errors() -> None:
    jobs = [seen(110, 100), seen(95, 100), seen(100, 100), seen(80, 100), seen(130, 100)]
    benchmark = benchmark_of(cast(JobRunner, None), [one.shape for one in jobs])
    found = figures_of(Outcome(benchmark, tuple(Measurement(ARM, number, one) for number, one in enumerate(jobs))))
    assert (found["jobs"], found["p50"], found["max_under"], found["max_over"]) == (
        5,
        pytest.approx(0.1),
        pytest.approx(0.2),
        pytest.approx(0.3),
    )
    assert cast(dict[str, tuple[float, float]], found["by_job"])["80/100"] == (80.0, 100.0)
