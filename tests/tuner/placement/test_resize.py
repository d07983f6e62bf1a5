"""A plan with other numbers: indices, threads and GPUs of its processes."""

from __future__ import annotations

import pytest

from elastichost.plan import Plan
from elastichost.resources import GpuDevice
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.placement.resize import resized_plan


def indices(plan: Plan) -> tuple[list[int], list[int]]:
    return [spec.index for spec in plan.workers], [spec.index for spec in plan.servers]


def test_processes_keep_their_indices_and_the_highest_are_removed_first() -> None:
    plan = initial_plan(cores=(0, 1), workers=2, servers=2)
    grown = resized_plan(plan, "asked", workers=4, servers=3)
    assert indices(grown) == ([0, 1, 2, 3], [0, 1, 2])
    assert grown.processes[:2] == plan.workers
    assert indices(resized_plan(grown, "asked", workers=1)) == ([0], [0, 1, 2])
    gap = Plan(tuple(spec for spec in grown.processes if spec.index != 1), "direct", "another's")
    assert indices(resized_plan(gap, "asked", workers=4, servers=1)) == ([0, 1, 2, 3], [0])
    assert resized_plan(plan, "asked").processes == plan.processes


def test_threads_change_for_all_workers() -> None:
    plan = resized_plan(initial_plan(cores=(0, 1), workers=2), "asked", worker_cores=3)
    assert [spec.threads for spec in plan.workers] == [3, 3]
    assert [spec.threads for spec in resized_plan(plan, "asked", workers=3).workers] == [3, 3, 3]
    assert plan.servers[0].threads == 1


def test_new_workers_get_free_gpus_with_the_same_share_and_the_others_train_on_the_cpu() -> None:
    gpus = (GpuDevice(0, "a", 1 << 30), GpuDevice(1, "b", 1 << 30))
    plan = initial_plan(cores=(0,), workers=(1, 4), gpus=gpus, gpu_memory_fraction=0.8)
    assert [spec.gpu_memory_fraction for spec in plan.workers] == [0.8, 0.8]  # a worker for each GPU
    grown = resized_plan(plan, "asked", workers=4, gpus=(0, 1))
    assert [spec.gpu for spec in grown.workers] == [0, 1, None, None]
    assert [spec.gpu_memory_fraction for spec in grown.workers] == [0.8, 0.8, 1.0, 1.0]
    assert resized_plan(grown, "asked", workers=2, gpus=(0, 1)).workers == plan.workers


def test_workers_keep_their_gpus_without_the_argument() -> None:
    gpus = (GpuDevice(0, "a", 1 << 30), GpuDevice(1, "b", 1 << 30))
    plan = initial_plan(cores=(0, 1), workers=2, gpus=gpus)
    assert resized_plan(plan, "asked", servers=2).workers == plan.workers


@pytest.mark.parametrize("sizes", [{"workers": 0}, {"servers": 0}, {"worker_cores": 0}])
def test_a_plan_needs_workers_and_ps(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a plan needs workers, PS and threads"):
        resized_plan(initial_plan(cores=(0,)), "asked", **sizes)  # type: ignore[arg-type]
