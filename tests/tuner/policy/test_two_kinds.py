"""The tuner of a job with a GPU and CPU workers beside it: it adds them where they help, and nowhere else."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.policy import TunerSettings, TunerState, advance_block
from elastichost.tuner.policy.profile import BlockSettings, ProfileSample, ProfileState, Totals, fold, merged, rescaled
from tests.tuner.models.test_two_kinds import CORES, GPU_SPEED, JOB, measured

MOST = 12


def settled(taken: float) -> int:
    """The number of workers that the tuner settles with. taken: as of `measured`."""
    bounds = Bounds(Configuration(1, 1), Configuration(MOST, 1), cores=CORES, oversubscription=2.0)
    settings = TunerSettings(workload=JOB, bounds=bounds)
    state, workers = TunerState(), 1
    for at_s in range(5, 100, 5):
        block = msgspec.structs.replace(measured(workers, taken=taken), at_s=float(at_s))
        state, decision = advance_block(state, block, 10**10, settings, float(at_s))
        assert decision is not None
        workers = decision.configuration.workers
        if decision.kind == "settle":
            return workers
    raise AssertionError("it does not settle")


@pytest.mark.parametrize(("taken", "expected"), [(0.1, MOST), (0.4, MOST), (3.0, 1)])
def test_cpu_workers_are_added_where_they_help_and_taken_back_where_they_take_more(taken: float, expected: int) -> None:
    assert settled(taken) == expected


def test_a_block_has_the_speed_of_gpu_workers_apart_and_the_times_of_cpu_workers() -> None:
    state = ProfileState()
    for half_s in range(16):
        totals = Totals(
            batches=2.0 * half_s, worker_cpu_s=0.5 * half_s, gpu_samples=9_000.0 * half_s, cpu_samples=1_000.0 * half_s
        )
        look = ProfileSample(0.5 * half_s, Configuration(3, 1), True, 10_000 * half_s, totals)
        job = msgspec.structs.replace(JOB, batch_size=500)
        state, block = fold(state, look, job, BlockSettings(log_error=1.0))
        if block is not None:
            break
    assert block is not None
    assert block.samples_per_s == pytest.approx(20_000.0)
    assert block.gpu_samples_per_s == pytest.approx(18_000.0)
    assert block.worker_cpu_s == pytest.approx(0.5 / 2), "CPU seconds of the CPU workers for each of their batches"


def test_the_speed_apart_is_kept_when_observations_are_merged_or_rescaled() -> None:
    one = measured(3)
    of_gpu = one.gpu_samples_per_s
    assert of_gpu is not None
    assert merged(one, one).gpu_samples_per_s == pytest.approx(of_gpu)
    half = msgspec.structs.replace(measured(1), samples_per_s=GPU_SPEED / 2)
    (left,) = rescaled((measured(1), one), half, 0.5)
    assert left.gpu_samples_per_s == pytest.approx(of_gpu / 2)
