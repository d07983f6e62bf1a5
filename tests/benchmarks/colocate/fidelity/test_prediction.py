"""Predictions are compared with the mean of recorded rounds, arm by arm."""

from __future__ import annotations

import pytest

from benchmarks.colocate.arms import ARMS, OURS, SHIPPED
from benchmarks.colocate.fidelity.calibration import SoloCosts
from benchmarks.colocate.fidelity.prediction import fidelity_of, predicted, settings_of
from benchmarks.colocate.jobs import SHAPES, Job
from benchmarks.colocate.recorded import ArmRun, JobRun
from tests.benchmarks.colocate.fidelity.test_calibration import MIB, recorded, single

SHAPE = next(shape for shape in SHAPES if shape.name == "input-a")
JOBS = tuple(Job(f"input-a-{number}", SHAPE, number, 40_000) for number in (1, 2, 3))
# a reader that waits 9/10 of the time: jobs beside each other hardly slow each other down
COSTS = {"input-a": SoloCosts("input-a", "input", 1e-4, 1e-5, 1.0, 100 * MIB, 1.0)}


def run(arm: str, number: int, *ends_s: float, failure: str = "") -> ArmRun:
    jobs: list[JobRun] = [recorded("input-a", 1, end_s, 0.0, 0.0) for end_s in ends_s]
    return ArmRun(mix="balanced", arm=arm, round=number, cores=2, memory_bytes=2**34, jobs=tuple(jobs), failure=failure)


def test_settings_are_those_of_the_arm() -> None:
    assert settings_of(ARMS[SHIPPED], 2).policy == "exclusive"
    assert settings_of(ARMS["concurrency"], 2).most_jobs == 2
    assert not settings_of(ARMS["concurrency"], 2).feedback and settings_of(ARMS[OURS], 2).feedback


def test_jobs_that_wait_for_input_run_together() -> None:
    alone = predicted(ARMS[SHIPPED], JOBS, COSTS, 2, 2**34)
    together = predicted(ARMS[OURS], JOBS, COSTS, 2, 2**34)
    assert alone.mean_s == pytest.approx(10.0, rel=0.02), "5, 10 and 15 s"
    assert 5.0 <= together.mean_s < 6.5


def test_errors_and_order() -> None:
    arms = (ARMS[SHIPPED], ARMS[OURS])
    runs = [
        run(SHIPPED, 0, 5.0, 10.0, 15.0),
        run(SHIPPED, 1, 5.2, 10.4, 15.6),
        run(OURS, 0, 40.0, 40.0, 40.0),
        run(OURS, 1, 1.0, failure="it was killed"),
        single(recorded("input-a", 1, 5.0, 0.0, 0.0)),
    ]
    found = fidelity_of(arms, JOBS, COSTS, runs)
    sequential, ours = found.arms
    assert len(sequential.recorded) == 2 and len(ours.recorded) == 1, "failed runs do not count"
    assert sequential.mean_error == pytest.approx(10.0 / 10.2 - 1, abs=0.02)
    assert ours.mean_error < -0.8 and ours.p95_error < -0.8
    assert found.recorded_order == (SHIPPED, OURS) and found.predicted_order == (OURS, SHIPPED)
    assert not found.is_near
    near = fidelity_of(arms[:1], JOBS, COSTS, runs)
    assert near.is_near, "one arm alone, as predicted"
    with pytest.raises(ValueError, match="no run of fifo succeeded"):
        fidelity_of((ARMS["fifo"],), JOBS, COSTS, runs)
