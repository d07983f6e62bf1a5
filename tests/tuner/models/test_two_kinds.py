"""Two kinds of workers: each has its own speed, and what one takes from the other is measured."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.queueing import fit as fit_one
from elastichost.tuner.models.registry import fit
from elastichost.tuner.models.residual_gp import surface
from elastichost.tuner.models.two_kinds import LOSS, LOSS_SD, SHARE, TwoKindsFit, fit_kinds

CORES = 16
JOB = Workload(batch_size=8192, host_cores=CORES, dense_bytes=4_000_000, has_gpus=True, gpus=1)
GPU_SPEED, CPU_SPEED, TAKEN = 1_000_000.0, 40_000.0, 0.4


def measured(workers: int, *, taken: float = TAKEN, is_apart: bool = True) -> Observation:
    """The observation of a job with one GPU whose worker loses `taken` (log) with a CPU worker on every core."""
    beside = workers - 1
    of_gpu = GPU_SPEED * math.exp(-taken * beside / CORES)
    return Observation(
        Configuration(workers, 1),
        samples_per_s=of_gpu + beside * CPU_SPEED,
        log_error=0.01,
        seconds=5.0,
        iterations=500,
        at_s=float(workers),
        compute_s=8192 / (CPU_SPEED if beside else GPU_SPEED),
        gpu_samples_per_s=of_gpu if beside and is_apart else None,
    )


def predicted(fitted: TwoKindsFit, workers: int) -> float:
    return float(fitted.predict(as_array([Configuration(workers, 1)])).samples_per_s[0])


def test_speeds_of_both_kinds_are_found_and_what_cpu_workers_take() -> None:
    fitted = fit_kinds(JOB, [measured(workers) for workers in (1, 3, 5)], fit_one)
    assert fitted.loss == pytest.approx(TAKEN, abs=0.1)
    assert fitted.loss_sd < LOSS_SD
    for workers in (1, 2, 4, 7, 9):
        assert predicted(fitted, workers) == pytest.approx(measured(workers).samples_per_s, rel=0.08)
    assert fitted.on_cpu is not None
    one = fitted.on_cpu.predict(as_array([Configuration(1, 1)]))
    assert one.samples_per_s[0] == pytest.approx(CPU_SPEED, rel=0.1), "not a mean over both kinds"
    assert fitted.parameters["loss"] == fitted.loss
    assert 0.0 < fitted.confidence <= 1.0


def test_cpu_workers_that_take_more_than_they_give_are_not_worth_it() -> None:
    fitted = fit_kinds(JOB, [measured(workers, taken=3.0) for workers in (1, 2, 4)], fit_one)
    assert predicted(fitted, 8) < predicted(fitted, 1)


def test_before_a_cpu_worker_was_measured_its_speed_is_a_guess() -> None:
    fitted = fit_kinds(JOB, [measured(1)], fit_one)
    told = fitted.predict(as_array([Configuration(1, 1), Configuration(3, 1)]))
    assert told.is_extrapolated[1]
    expected = GPU_SPEED * (math.exp(-LOSS * 2 / CORES) + 2 * SHARE)
    assert told.samples_per_s == pytest.approx([GPU_SPEED, expected], rel=0.05)
    assert (fitted.loss, fitted.loss_sd) == pytest.approx((LOSS, LOSS_SD))


def test_without_cpu_workers_the_fit_is_that_of_the_gpus_alone() -> None:
    job = msgspec.structs.replace(JOB, gpus=4)
    seen = [
        Observation(Configuration(workers, 1), workers * GPU_SPEED * 0.9**workers, 0.02, iterations=500, at_s=workers)
        for workers in (1, 2)
    ]
    alone, kinds = fit_one(msgspec.structs.replace(job, gpus=0), seen), fit("elastichost", job, seen)
    space = as_array([Configuration(workers, 1) for workers in (1, 2, 3, 4)])
    np.testing.assert_allclose(kinds.predict(space).samples_per_s, alone.predict(space).samples_per_s)
    np.testing.assert_allclose(kinds.predict(space).log_error, alone.predict(space).log_error)
    assert kinds.posterior() == alone.posterior()
    assert (kinds.rank, kinds.parameters_total) == (alone.rank, alone.parameters_total)


def test_speeds_that_were_not_measured_apart_are_left_out() -> None:
    seen = [measured(1), measured(3, is_apart=False)]
    assert predicted(fit_kinds(JOB, seen, fit_one), 1) == pytest.approx(GPU_SPEED, rel=0.05)
    assert fit_kinds(JOB, seen[1:], fit_one).on_gpus.observations == 0
    fit("elastichost", JOB, ())


def test_the_residual_surface_takes_both_kinds() -> None:
    seen = [measured(workers) for workers in (1, 2, 5)]
    ground = surface(fit("elastichost", JOB, seen), seen, None)
    told = ground.at(as_array([Configuration(workers, 1) for workers in (1, 3, 5)]))
    assert told.samples_per_s == pytest.approx([measured(workers).samples_per_s for workers in (1, 3, 5)], rel=0.05)


@given(
    sizes=st.sets(st.integers(1, 12), min_size=1, max_size=5),
    taken=st.floats(0.0, 3.0),
    gpus=st.integers(1, 3),
    asked=st.integers(1, 20),
)
def test_predictions_are_finite_and_no_cpu_worker_makes_a_gpu_faster(
    sizes: set[int], taken: float, gpus: int, asked: int
) -> None:
    job = msgspec.structs.replace(JOB, gpus=gpus)
    seen = [measured(workers, taken=taken) for workers in sorted(sizes)]
    fitted = fit_kinds(job, seen, fit_one)
    told = fitted.predict(as_array([Configuration(asked, 1, 2)]))
    assert np.isfinite(told.samples_per_s).all() and (told.low <= told.high).all() and (told.log_error > 0).all()
    assert fitted.loss >= 0.0
