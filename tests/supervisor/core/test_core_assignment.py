"""The cores and the GPU of each process of a plan."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from elastichost.resources import GpuDevice
from elastichost.supervisor.core.core_assignment import capacity_of, gpu_environment, pin
from elastichost.supervisor.launch.servers import fork_server_environment
from elastichost.tuner.cold_start import initial_plan


def test_workers_get_own_cores_and_share_fewer_spare_cores_than_workers() -> None:
    pinned = pin(initial_plan(cores=(2, 3, 5), workers=2), (2, 3, 5))
    assert [spec.cores for spec in pinned.plan.workers] == [(2, 5), (3, 5)]
    assert [spec.cores for spec in pinned.plan.servers] == [(5,)]
    assert pinned.warnings == ()


def test_spare_cores_are_dealt_evenly_and_ps_share_them_all() -> None:
    cores = tuple(range(7))
    pinned = pin(initial_plan(cores=cores, workers=2), cores)
    assert [spec.cores for spec in pinned.plan.workers] == [(0, 2, 3), (1, 4, 5)]
    assert [spec.cores for spec in pinned.plan.servers] == [(2, 3, 4, 5, 6)]


def test_a_ps_may_use_all_cores_when_workers_have_every_core() -> None:
    pinned = pin(initial_plan(cores=(0, 1)), (0, 1))
    assert [spec.cores for spec in pinned.plan.workers] == [(0,), (1,)]
    assert [spec.cores for spec in pinned.plan.servers] == [(0, 1)]


def test_more_workers_than_cores_share_all_cores_with_a_warning() -> None:
    pinned = pin(initial_plan(cores=(0, 1), workers=4), (0, 1))
    assert {spec.cores for spec in pinned.plan.workers} == {(0, 1)}
    assert "4 worker threads share 2 cores" in pinned.warnings[0]


def test_a_worker_with_two_threads_gets_two_cores() -> None:
    plan = initial_plan(cores=(0, 1, 2, 3), workers=2)
    wide = tuple(msgspec.structs.replace(spec, threads=2) for spec in plan.workers)
    pinned = pin(msgspec.structs.replace(plan, processes=(*wide, *plan.servers)), (0, 1, 2, 3))
    assert [spec.cores for spec in pinned.plan.workers] == [(0, 1), (2, 3)]


def test_each_process_sees_its_gpu_and_no_other() -> None:
    gpus = (GpuDevice(0, "a", 1 << 30), GpuDevice(1, "b", 1 << 30, uuid="GPU-b1"))
    plan = initial_plan(cores=(0, 1, 2), workers=3, gpus=gpus, gpu_memory_fraction=0.9)
    assert [gpu_environment(spec, gpus)["CUDA_VISIBLE_DEVICES"] for spec in plan.workers] == ["0", "GPU-b1", ""]
    assert [spec.gpu_memory_fraction for spec in plan.workers] == [0.9, 0.9, 1.0]
    assert [gpu_environment(spec)["CUDA_VISIBLE_DEVICES"] for spec in plan.servers] == [""]
    # NVML, which libraries use while they are imported, does not work in a forked process
    assert gpu_environment(plan.workers[0])["PYTORCH_NVML_BASED_CUDA_CHECK"] == "0"
    assert fork_server_environment()["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"


def test_workers_with_a_gpu_get_cores_near_it_and_choose_before_the_others() -> None:
    gpus = (GpuDevice(0, "a", 1 << 30, near_cores=(4, 5, 6, 7)), GpuDevice(1, "b", 1 << 30, near_cores=(0, 1, 2, 3)))
    plan, cores = initial_plan(cores=tuple(range(8)), workers=3, gpus=gpus), tuple(range(8))
    assert [spec.cores for spec in pin(plan, cores, gpus=gpus).plan.workers] == [(4, 5), (0, 2), (1, 3)]
    assert [spec.cores for spec in pin(plan, cores).plan.workers] == [(0, 3), (1, 4), (2, 5)], "NVML does not tell"
    few = pin(plan, (0, 1, 2), gpus=gpus).plan.workers
    assert [spec.cores for spec in few] == [(0,), (1,), (2,)], "no core near GPU 0 is the job's"


@given(
    workers=st.integers(1, 5),
    threads=st.integers(1, 3),
    cores=st.integers(1, 16),
    near=st.lists(st.frozensets(st.integers(0, 15)), max_size=3),
)
def test_cores_near_gpus_change_no_number_of_cores(
    workers: int, threads: int, cores: int, near: list[frozenset[int]]
) -> None:
    gpus = tuple(GpuDevice(index, "a", 1, near_cores=tuple(sorted(some))) for index, some in enumerate(near))
    plan = initial_plan(cores=tuple(range(cores)), workers=workers, gpus=gpus)
    wide = tuple(msgspec.structs.replace(spec, threads=threads) for spec in plan.workers)
    plan = msgspec.structs.replace(plan, processes=(*wide, *plan.servers))
    usual, placed = (pin(plan, tuple(range(cores)), gpus=told).plan for told in ((), gpus))
    assert [len(spec.cores) for spec in placed.processes] == [len(spec.cores) for spec in usual.processes]
    assert all(len(set(spec.cores)) == len(spec.cores) for spec in placed.processes)
    own = [core for spec in placed.workers for core in spec.cores[: spec.threads]]
    assert len(set(own)) == len(own) or workers * threads > cores, "no two workers train on one core"


def test_processes_on_other_hosts_get_cores_of_their_host() -> None:
    plan = initial_plan(cores=(4, 5), workers=4, servers=2, hosts=2, capacity=(2, 2))
    pinned = pin(plan, (4, 5), {1: (0, 1)})
    cores = {(spec.host, spec.role): set[int]() for spec in pinned.plan.processes}
    for spec in pinned.plan.processes:
        cores[spec.host, spec.role] |= set(spec.cores)
    assert cores == {(0, "worker"): {4, 5}, (0, "server"): {4, 5}, (1, "worker"): {0, 1}, (1, "server"): {0, 1}}
    assert [len(spec.cores) for spec in pinned.plan.workers] == [1, 1, 1, 1]
    assert pinned.warnings == ()
    crowded = pin(initial_plan(cores=(4, 5), workers=8, hosts=2, capacity=(2, 2)), (4, 5), {1: (0, 1)})
    assert [warning.partition(":")[0] for warning in crowded.warnings[1:]] == ["host 1"]


def test_a_lost_host_has_zero_cores_whatever_its_number() -> None:
    assert capacity_of(2, {1: (0, 1), 2: (0, 1, 2)}, 3) == (2, 2, 3)
    assert capacity_of(2, {1: (0, 1)}, 3) == (2, 2, 0)
    assert capacity_of(2, {2: (0,)}, 3) == (2, 0, 1)
    assert capacity_of(2, {}, 3) == (2, 0, 0), "no new process is placed on a lost host"
