"""CPU workers beside workers with a GPU: where they may train, and what a job without them is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from elastichost.config.job import JobSpec, load_job
from elastichost.errors import GpuLostError, PreflightError
from elastichost.plan import Access
from elastichost.resources import GpuDevice
from elastichost.supervisor.startup import worker_kinds
from elastichost.supervisor.startup.worker_kinds import check_after_loss, check_kinds, why_no_cpu_workers
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.placement.gpu_workers import plan_without_gpus

GPUS = (GpuDevice(0, "a", 80 << 30), GpuDevice(3, "b", 80 << 30))


def job_of(folder: Path, train: str = "", workers: str = '"auto"', more: str = "") -> JobSpec:
    path = folder / "job.toml"
    path.write_text(
        f'[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "synthetic"\n[train]\n{train}\n'
        f"[resources]\nworkers = {workers}\n{more}"
    )
    return load_job(path, environ={})


def checked(job: JobSpec, gpus: tuple[GpuDevice, ...] = GPUS, access: Access = "direct") -> tuple[str, ...]:
    plan = initial_plan(cores=(0, 1, 2, 3), workers=job.resources.workers, gpus=gpus)
    return check_kinds(job, replace(plan, access=access), gpus)


def test_both_kinds_may_train_asynchronously(tmp_path: Path) -> None:
    assert checked(job_of(tmp_path, workers="3")) == ()
    assert why_no_cpu_workers(job_of(tmp_path)) == ""


def test_sync_mode_refuses_a_cpu_worker_beside_gpus_because_the_bits_differ(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"3 workers .* 1 would train on the CPU: .* bits") as refused:
        checked(job_of(tmp_path, 'mode = "sync"', "3"))
    assert "resources.workers = 2" in refused.value.hint
    assert checked(job_of(tmp_path, 'mode = "sync"', "2")) == ()
    assert checked(job_of(tmp_path, 'mode = "sync"', "[1, 8]")) == (), "the tuner stays within the GPUs"


def test_bfloat16_is_refused_on_a_cpu_without_units_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, 'precision = "bfloat16"', "3")
    monkeypatch.setattr(worker_kinds, "refuses_bfloat16", lambda cpu: "it has no such unit")
    with pytest.raises(PreflightError, match="it has no such unit"):
        checked(job)
    monkeypatch.setattr(worker_kinds, "refuses_bfloat16", lambda cpu: "")
    assert checked(job) == ()


def test_bounded_workers_wait_for_the_slower_kind(tmp_path: Path) -> None:
    (warning,) = checked(job_of(tmp_path, 'mode = "bounded"', "3"))
    assert "wait for the CPU workers" in warning
    assert checked(job_of(tmp_path, 'mode = "bounded"', "2")) == ()


def test_a_gpu_without_a_worker_is_a_warning(tmp_path: Path) -> None:
    (warning,) = checked(job_of(tmp_path, workers="1"))
    assert warning.startswith("GPU 3 has no worker")


def test_a_run_that_may_not_train_on_the_cpu_fails_with_its_last_gpu(tmp_path: Path) -> None:
    sync, both = job_of(tmp_path, 'mode = "sync"'), initial_plan(cores=(0, 1), workers=2, gpus=GPUS)
    left = plan_without_gpus(both, {0}, (3,), "GPU 0 is lost")
    check_after_loss(sync, left, "GPU 0 is lost")
    none = plan_without_gpus(left, {3}, (), "GPU 3 is lost")
    with pytest.raises(GpuLostError, match="GPU 3 is lost, no other is left, and .* the bits"):
        check_after_loss(sync, none, "GPU 3 is lost")
    check_after_loss(job_of(tmp_path), none, "GPU 3 is lost")


def test_a_model_in_memory_of_a_gpu_has_one_worker_with_direct_access(tmp_path: Path) -> None:
    def resident(workers: str) -> JobSpec:
        return job_of(tmp_path, workers=workers, more='gpus = 1\nmodel_memory = "gpu"\n')

    one = GPUS[:1]
    assert checked(resident("1"), one) == ()
    assert "in memory of the GPU" in why_no_cpu_workers(resident("1"))
    with pytest.raises(PreflightError, match=r"may have 2 workers"):
        checked(resident("[1, 2]"), one)
    with pytest.raises(PreflightError, match=r"do not use rows in place \(access: mixed\)"):
        checked(resident("1"), one, "mixed")
    with pytest.raises(PreflightError, match="no worker with a GPU, or more than one"):
        checked(resident("1"), ())
    with pytest.raises(PreflightError, match="no worker with a GPU, or more than one"):
        checked(resident("2"), GPUS)
