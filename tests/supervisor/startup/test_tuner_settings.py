"""The bounds of the tuner's plans: they are as the job file says, and no plan changes the result of sync mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.arena.layout import MAX_WORKERS
from elastichost.config.job import JobSpec, load_job
from elastichost.resources import GpuDevice
from elastichost.supervisor.startup.tuner_settings import asked_bounds, bounds_of_job, workload_of
from elastichost.tuner.cold_start import initial_plan

CORES = 8
JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[train]
mode = "{mode}"
[resources]
workers = {workers}
servers = [1, 2]
[tuner]
first_plan = {{ worker_cores = {worker_cores} }}
"""


def threads_of(folder: Path, mode: str, workers: str = '"auto"', worker_cores: int = 0) -> tuple[int, int]:
    """(least, most) cores of a worker."""
    path = folder / "job.toml"
    path.write_text(JOB.format(mode=mode, workers=workers, worker_cores=worker_cores))
    job: JobSpec = load_job(path, environ={})
    plan = initial_plan(cores=tuple(range(CORES)), workers=job.resources.workers)
    bounds = bounds_of_job(job, plan, CORES)
    return bounds.least.worker_cores, bounds.most.worker_cores


@pytest.mark.parametrize("mode", ["async", "bounded"])
def test_the_tuner_chooses_threads_if_it_also_chooses_the_number_of_workers(tmp_path: Path, mode: str) -> None:
    assert threads_of(tmp_path, mode) == (1, CORES)
    assert threads_of(tmp_path, mode, "4") == (1, 1)
    assert threads_of(tmp_path, mode, "4", worker_cores=2) == (2, 2), "as the job file says"


def test_in_sync_mode_threads_are_fixed_because_the_bits_depend_on_them(tmp_path: Path) -> None:
    assert threads_of(tmp_path, "sync") == (1, 1)
    assert threads_of(tmp_path, "sync", "[1, 4]") == (1, 1)
    assert threads_of(tmp_path, "sync", worker_cores=2) == (2, 2)


@pytest.mark.parametrize(
    ("mode", "workers", "most", "asked"),
    [
        ("async", '"auto"', 1, MAX_WORKERS),
        ("async", "[1, 3]", 3, 3),
        ("async", "[1, 20]", 20, 20),
        ("sync", '"auto"', 1, 1),
        ("sync", "[1, 3]", 1, 1),
    ],
)
def test_on_gpus_workers_beyond_the_gpus_are_on_the_cpu_and_none_in_sync_mode(
    tmp_path: Path, mode: str, workers: str, most: int, asked: int
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(mode=mode, workers=workers, worker_cores=0))
    job = load_job(path, environ={})
    gpus = (GpuDevice(0, "a", 80 << 30),)
    cores = tuple(range(CORES))
    plan = initial_plan(cores=cores, workers=job.resources.workers, gpus=gpus, gpu_memory_fraction=0.9)
    assert bounds_of_job(job, plan, CORES).most.workers == most
    assert asked_bounds(job, plan, CORES).most.workers == asked
    assert plan.workers[0].gpu_memory_fraction == 0.9


def test_the_tuner_knows_that_workers_compute_on_gpus(tmp_path: Path) -> None:
    """Their threads use CPU time while they wait for a GPU, which does not limit the speed."""
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(mode="async", workers='"auto"', worker_cores=0))
    job = load_job(path, environ={})
    for gpus in ((), (GpuDevice(0, "a GPU", 2**34),)):
        plan = initial_plan(cores=tuple(range(CORES)), gpus=gpus)
        workload = workload_of(job, None, plan, CORES)
        assert (workload.has_gpus, workload.gpus) == (bool(gpus), len(gpus))
