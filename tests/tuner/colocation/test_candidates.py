"""The candidates for starts: which fit, the load of a GPU, and which would end too late."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from elastichost.tuner.colocation.candidates import bottleneck, candidates, fits, free_memory, outlasts
from elastichost.tuner.colocation.facts import CPU, GpuCapacity, HostCapacity, JobDemand, PlacedJob, Placement
from elastichost.tuner.colocation.ledger import Margins
from elastichost.tuner.colocation.speeds import demand_matrix
from tests.tuner.colocation.jobs import GB, GPU_HOST, HOST, gpu_mode, job, mode, placed


def fitting(
    job: JobDemand, running: Sequence[PlacedJob], host: HostCapacity, margins: Margins | None = None
) -> tuple[Placement, ...]:
    """The placements of a job that fit now, by mode and device."""
    ways = candidates((job,), host, margins or Margins())
    return tuple(ways.placement(int(at)) for at in np.flatnonzero(fits(ways, free_memory(host, running))))


def test_every_mode_on_every_device() -> None:
    demand = job("a", mode(), gpu_mode())
    assert fitting(demand, [], GPU_HOST) == (Placement(0), Placement(1, 0), Placement(1, 1))
    assert fitting(demand, [], HOST) == (Placement(0),), "the host has no GPU"


def test_memory_of_the_host_and_of_each_gpu() -> None:
    demand = job("a", mode(memory=9.0), gpu_mode(gpu_memory=6.0))
    busy = placed(job("b", gpu_mode(memory=25.0, gpu_memory=4.0)), device=0)
    assert fitting(demand, [busy], GPU_HOST) == (Placement(1, 1),), "30 GB are charged on the host, 4.8 on GPU 0"


def test_on_an_empty_host_no_margin_is_needed() -> None:
    demand = job("a", mode(memory=9.0))
    assert fitting(demand, [], HOST) == (Placement(0),)
    assert fitting(demand, [placed(job("b", mode(memory=0.1)))], HOST) == ()
    assert fitting(job("c", mode(memory=10.1)), [], HOST) == ()


def test_a_mode_with_more_threads_than_cores_is_used_only_if_there_is_no_other() -> None:
    wide, narrow = mode(workers=8), mode(workers=4)
    assert fitting(job("a", wide, narrow), [], HOST) == (Placement(1),)
    assert fitting(job("a", wide), [], HOST) == (Placement(0),)


def test_learned_margins_and_a_fixed_margin() -> None:
    demand = job("a", mode(memory=4.0))
    plain, fixed = candidates([demand], HOST, Margins()), candidates([demand], HOST, Margins(), fixed_margin=2.0)
    assert plain.charge.tolist() == [4.8 * GB]
    assert fixed.charge.tolist() == [8.0 * GB]
    room = free_memory(HOST, [placed(job("b", mode(memory=2.0)))])
    assert fits(plain, room).tolist() == [True]
    assert fits(fixed, room).tolist() == [False]


def test_the_candidates_of_a_job_lie_side_by_side() -> None:
    jobs = [job("a", mode(), gpu_mode()), job("g", gpu_mode()), job("b", mode()), job("c", gpu_mode(), mode(speed=9.0))]
    for host in (HOST, GPU_HOST):
        ways = candidates(jobs, host, Margins())
        for index in range(len(jobs)):
            assert ways.of(index).tolist() == np.flatnonzero(ways.job == index).tolist()
    assert ways.of(3).tolist() == [6, 7, 8]


def test_arenas_share_a_file_system() -> None:
    """/dev/shm is often smaller than the memory of all jobs."""

    def with_arena(name: str, arena: float) -> JobDemand:
        return job(name, msgspec.structs.replace(mode(memory=3.0), arena_bytes=round(arena * GB)))

    small = msgspec.structs.replace(HOST, arena_bytes=4 * GB)
    runs = [placed(with_arena("r", 2.5))]
    assert free_memory(small, runs).arena == 1.5 * GB
    assert fitting(with_arena("a", 1.5), runs, small) == (Placement(0),)
    assert fitting(with_arena("a", 1.6), runs, small) == (), "it waits"
    assert fitting(with_arena("a", 1.6), runs, HOST) == (Placement(0),), "the size of the file system is not known"
    assert fitting(with_arena("a", 9.0), [], small) == (Placement(0),), "alone its tables take what there is"
    full = [placed(with_arena("r", 9.0))]
    assert fitting(with_arena("a", 0.1), full, small) == ()
    assert fitting(job("a"), full, small) == (Placement(0),), "it has no arena"


def test_overcommitted_memory_leaves_nothing_free() -> None:
    room = free_memory(HOST, [placed(job("b", mode(memory=20.0)))])
    assert (room.memory, room.is_empty) == (0.0, False)


def test_the_bottleneck_of_a_gpu_is_its_fullest_resource() -> None:
    ways = candidates([job("a", mode(), gpu_mode(0.3, 0.4))], GPU_HOST, Margins())
    demand = demand_matrix([placed(job("b", gpu_mode(0.5, 0.1)), device=1)], 2)
    assert ways.device.tolist() == [CPU, 0, 1]
    assert bottleneck(ways, demand) == pytest.approx([0.0, 0.4, 0.8])
    on_cpu = candidates([job("a")], HOST, Margins())
    assert bottleneck(on_cpu, np.zeros((0, 3))).tolist() == [0.0], "a host without GPUs"


def test_a_job_on_the_cpu_must_not_outlast_the_batch() -> None:
    both, cpu_only = job("a", mode(speed=100.0), gpu_mode(speed=400.0)), job("c", mode(), seconds=400.0)
    ways = candidates([both, cpu_only], GPU_HOST, Margins())
    assert ways.alone_s.tolist() == [400.0, 100.0, 100.0, 400.0]
    own = np.ones(len(ways))

    def late(ends_s: float, *work_s: float) -> list[bool]:
        return [bool(one) for one in outlasts(ways, own, ends_s, np.array(work_s), worth_now=2.0)]

    assert late(0.0, 100.0, 400.0, 0.0) == [True, False, False, False], "the others need 200 s, this job 400 s"
    assert late(500.0, 100.0, 0.0, 0.0) == [False] * 4, "a running job ends later"
    assert late(0.0, 100.0, 400.0, 500.0) == [False] * 4, "the others need 450 s"
    assert outlasts(ways, np.full(len(ways), 0.5), 500.0, np.zeros(3), 2.0)[0], "it is slower beside others"
    small = HostCapacity(8, 40 * GB, (GpuCapacity(0, GB),))
    ways = candidates([both], small, Margins())
    assert not outlasts(ways, np.ones(len(ways)), 0.0, np.zeros(2), 1.0).any(), "no GPU here is large enough for it"
