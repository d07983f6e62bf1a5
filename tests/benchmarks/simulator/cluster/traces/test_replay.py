"""Jobs of a trace come when they came, and last as long as they did, with what they asked for."""

from __future__ import annotations

import pytest

from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS, REFERENCE, JobMix, draw_jobs
from benchmarks.simulator.cluster.traces.replay import configuration_of, core_seconds, folded, replayed
from benchmarks.simulator.cluster.traces.trace import Trace, TraceJob
from benchmarks.simulator.queueing import truth_tables

MIX = JobMix(families=4)
TRACE = Trace(
    "small",
    "elastichost",
    (
        TraceJob("a", 0.0, 3600.0, cores=48.0, memory_bytes=60 * 10**9),
        TraceJob("b", 50.0, 1800.0, gpus=2.0),
        TraceJob("c", 90_000.0, 7200.0),
        TraceJob("d", 90_010.0, samples=123_456_789),
    ),
    0,
)


def jobs(**options: float) -> tuple:  # type: ignore[type-arg]
    return replayed(3, TRACE, MIX, truth_tables.tables(), DEFAULT_LIMITS, **options)  # type: ignore[arg-type]


def test_arrivals_and_lengths_are_those_of_the_trace() -> None:
    found = jobs()
    assert [one.arrived_s for one in found] == [0.0, 50.0, 90_000.0, 90_010.0]
    lengths = [one.samples / one.truth.speed(one.request).samples_per_s for one in found[:2]]
    assert lengths == pytest.approx([3600.0, 1800.0], rel=1e-6), "with the cores that they asked for"
    assert found[2].samples / found[2].truth.speed(REFERENCE).samples_per_s == pytest.approx(7200.0, rel=1e-6)
    assert found[3].samples == found[3].features.samples == 123_456_789
    assert [one.request.cores for one in found[:2]] == [48, 24], "12 cores for each GPU"
    drawn = draw_jobs(3, 4, MIX, truth_tables.tables(), DEFAULT_LIMITS)
    assert [one.request for one in found[2:]] == [one.request for one in drawn[2:]], "nothing was asked"


def test_asked_memory_stays_in_proportion_to_what_a_job_needs() -> None:
    drawn = draw_jobs(3, 1, MIX, truth_tables.tables(), DEFAULT_LIMITS)[0]
    found = jobs()[0]
    assert found.requested_memory_bytes == 60 * 10**9
    asked = drawn.requested_memory_bytes / drawn.memory.used_bytes(float(drawn.samples), drawn.request)
    needed = found.memory.used_bytes(float(found.samples), found.request)
    assert found.requested_memory_bytes / needed == pytest.approx(asked)
    without = jobs()[1]
    assert without.requested_memory_bytes > without.memory.worker_bytes, "the trace does not tell what it asked for"


def test_days_are_laid_over_each_other() -> None:
    found = folded(TRACE.jobs, 86_400.0)
    assert [(one.job_id, one.submit_s) for one in found] == [("a", 0.0), ("b", 50.0), ("c", 3600.0), ("d", 3610.0)]
    assert folded(TRACE.jobs, 0.0) == TRACE.jobs
    assert [one.submit_s for one in folded(TRACE.jobs, 60.0)] == [0.0, 0.0, 10.0, 50.0], "in order of submission"
    assert core_seconds(jobs(period_s=86_400.0)) == pytest.approx(core_seconds(jobs()))


def test_only_the_first_jobs() -> None:
    assert [one.arrived_s for one in jobs(count=2)] == [0.0, 50.0]


@pytest.mark.parametrize("cores", [1, 2, 3, 5, 6, 12, 24, 60, 100, 300, 768, 5000])
def test_configurations_have_about_the_asked_cores(cores: int) -> None:
    found = configuration_of(cores, DEFAULT_LIMITS)
    assert found.workers <= 32 and found.servers <= 16 and found.worker_cores <= 16
    assert found.cores == pytest.approx(min(max(2, cores), 768), rel=0.2)
