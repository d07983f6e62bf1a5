"""What `plan` says about GPUs: which worker has which, and which workers train on the CPU."""

from __future__ import annotations

from elastichost.cli.gpu_words import gpu_words
from elastichost.resources import GpuDevice
from elastichost.supervisor.core.core_assignment import pin
from elastichost.tuner.cold_start import initial_plan

GPUS = (GpuDevice(0, "A100", 80 << 30, near_cores=(2, 3)), GpuDevice(1, "H200", 35 << 30, total_bytes=140 << 30))


def words(workers: int) -> list[str]:
    cores = (0, 1, 2, 3)
    plan = pin(initial_plan(cores=cores, workers=workers, gpus=GPUS), cores, gpus=GPUS).plan
    return list(gpu_words(plan, GPUS))


def test_each_gpu_has_a_line_and_the_other_workers_have_one() -> None:
    assert words(4) == [
        "GPU 0: A100, 80.0 GiB; worker 0 may use 90% of its memory, 1 of 1 core near it",
        "GPU 1: H200, 140.0 GiB; worker 1 may use 90% of its memory",
        "CPU: workers 2-3",
    ]
    assert words(3)[-1] == "CPU: worker 2"


def test_a_gpu_without_a_worker_is_told() -> None:
    assert words(1)[1] == "GPU 1: H200, 140.0 GiB; no worker"
