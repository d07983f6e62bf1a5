"""The simulator's job, calibrated with two runs of it alone, runs alone as long as it did."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.colocate.fidelity.calibration import SoloCosts, batch_of, solo_costs
from benchmarks.colocate.jobs import SHAPES, Job
from benchmarks.colocate.recorded import ArmRun, JobRun
from benchmarks.simulator.colocation.simulation import simulate_batch
from elastichost.tuner.colocation.settings import ColocationSettings

MIB = 2**20
KINDS = {shape.name: shape.kind for shape in SHAPES}


def recorded(shape: str, samples: int, sample_s: float, cpu_s: float, fixed_s: float, began_s: float = 0.0) -> JobRun:
    """A job whose samples take sample_s and cpu_s each."""
    return JobRun(
        job=f"{shape}-1",
        shape=shape,
        kind=KINDS[shape],
        state="done",
        why="",
        started_s=began_s,
        ended_s=began_s + fixed_s + samples * sample_s,
        starts=1,
        workers=1,
        samples=samples,
        cpu_s=0.5 + samples * cpu_s,
        peak_bytes=200 * MIB,
        estimated_bytes=240 * MIB,
        out_of_memory=0,
    )


def single(*jobs: JobRun) -> ArmRun:
    return ArmRun(mix="balanced", arm="single", round=0, cores=2, memory_bytes=2**34, jobs=jobs)


def test_costs_are_differences_of_two_runs() -> None:
    short = single(recorded("dense-a", 50_000, 2e-5, 3e-5, 1.5))
    long = single(recorded("dense-a", 200_000, 2e-5, 3e-5, 1.5, began_s=0.2))
    found = solo_costs(short, long)["dense-a"]
    assert (found.sample_s, found.sample_cpu_s) == pytest.approx((2e-5, 3e-5))
    assert found.fixed_s == pytest.approx(1.7), "the dispatcher took 0.2 s to start it"
    assert (found.kind, found.peak_bytes, found.estimated) == ("dense", 200 * MIB, 1.2)


def test_the_time_between_jobs_is_that_of_the_dispatcher() -> None:
    long = single(
        recorded("dense-a", 200_000, 2e-5, 3e-5, 1.0, began_s=0.3),  # until 5.3 s
        recorded("input-a", 10_000, 4e-4, 1e-5, 1.0, began_s=5.5),  # until 10.5 s
        recorded("input-b", 10_000, 4e-4, 1e-5, 1.0, began_s=10.9),
    )
    short = single(*(recorded(job.shape, 5_000, 2e-5 if job.kind == "dense" else 4e-4, 1e-5, 1.0) for job in long.jobs))
    assert [one.fixed_s for one in solo_costs(short, long).values()] == pytest.approx([1.3] * 3)


def test_runs_that_tell_nothing() -> None:
    one = single(recorded("dense-a", 50_000, 2e-5, 3e-5, 1.5))
    with pytest.raises(ValueError, match="0 more samples"):
        solo_costs(one, one)
    with pytest.raises(ValueError, match="the batch ended with exit code 1"):
        solo_costs(one, msgspec.structs.replace(one, failure="the batch ended with exit code 1"))


@pytest.mark.parametrize("cpu_share", [0.1, 0.9, 1.0, 1.6])
@pytest.mark.parametrize("shape", ["input-a", "dense-a", "embedding-b", "balanced-c"])
def test_a_job_alone_lasts_as_long_as_it_did(shape: str, cpu_share: float) -> None:
    costs = SoloCosts(shape, KINDS[shape], 1e-4, cpu_share * 1e-4, 1.5, 200 * MIB, 1.2)
    job = Job(f"{shape}-1", next(one for one in SHAPES if one.name == shape), 1, 80_000)
    batch = batch_of([job], {shape: costs}, 1, cores=2, memory_bytes=2**34)
    found = simulate_batch(batch, ColocationSettings(policy="exclusive"))
    assert found.makespan_s == pytest.approx(1.5 + 8.0, rel=0.01)


def test_jobs_of_a_shape_are_a_family() -> None:
    shapes = [shape for shape in SHAPES if shape.name in ("dense-a", "input-a")]
    jobs = [Job(f"{shape.name}-{number}", shape, number, 1000 * number) for number in (1, 2) for shape in shapes]
    costs = {shape.name: SoloCosts(shape.name, shape.kind, 1e-4, 1e-4, 1.0, MIB, 1.0) for shape in shapes}
    batch = batch_of(jobs, costs, 1, 2, 2**34)
    assert [one.job for one in batch.jobs] == [job.name for job in jobs]
    assert batch.jobs[0].family is batch.jobs[2].family is not batch.jobs[1].family
    with pytest.raises(KeyError):
        batch_of(jobs, {}, 1, 2, 2**34)
