"""The readers of a plan: they follow their workers."""

from __future__ import annotations

import pytest

from elastichost.config.job import JobSpec
from elastichost.plan import MOST_READERS, Plan, ProcessSpec, reader_index, worker_of_reader
from elastichost.tuner.placement.readers import readers_of, with_readers

SERVER = ProcessSpec("server", 0, (7,), 1)


def job(readers: int | str, *, emulated: bool = False) -> JobSpec:
    data = {"train": ["a.parquet"], "label": "y", "categorical": ["user"], "input": {"readers": readers}}
    emulate = {"emulate": {"enabled": True}} if emulated else {}
    return JobSpec.model_validate({"model": {"build": "m:b"}, "data": data, **emulate})


def worker(index: int, *cores: int, gpu: int | None = None, host: int = 0) -> ProcessSpec:
    return ProcessSpec("worker", index, cores, 1, gpu=gpu, host=host)


def test_a_reader_has_the_spare_cores_and_the_host_of_its_worker() -> None:
    plan = Plan((worker(0, 0, 4, 5), worker(3, 1, host=1), SERVER), "direct", "test")
    assert with_readers(plan, job(2)).processes[3:] == (
        ProcessSpec("reader", 0, (4, 5), 1),
        ProcessSpec("reader", 1, (4, 5), 1),
        ProcessSpec("reader", 300, (1,), 1, host=1),
        ProcessSpec("reader", 301, (1,), 1, host=1),
    )


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (worker(0, 0, 1, 2), 0),
        (worker(0, 0, gpu=0), 1),
        (worker(0, 0, 1, 2, gpu=0), 2),
        (worker(0, *range(30), gpu=0), MOST_READERS),
    ],
)
def test_auto_gives_readers_to_workers_with_a_gpu_within_their_spare_cores(spec: ProcessSpec, count: int) -> None:
    assert len(readers_of(spec, job("auto"))) == count


def test_a_worker_that_drains_keeps_its_readers_and_the_end_of_a_run_has_none() -> None:
    leaving = worker(1, 2)
    names = [spec.index for spec in with_readers(Plan((worker(0, 1),), "direct", ""), job(1), [leaving]).processes[1:]]
    assert names == [0, 100]
    ended = Plan((SERVER,), "direct", "the end")
    assert with_readers(ended, job(1), [leaving]) == ended


def test_an_emulated_worker_reads_nothing() -> None:
    plan = Plan((worker(0, 1),), "served", "")
    assert with_readers(plan, job(2, emulated=True)) == plan


def test_the_index_of_a_reader_names_its_worker() -> None:
    assert [worker_of_reader(reader_index(63, number)) for number in range(MOST_READERS)] == [63] * MOST_READERS
