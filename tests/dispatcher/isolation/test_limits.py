"""The files that are written for limits, and the meaning of the kernel's files."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.dispatcher.isolation.limits import (
    WALL,
    JobLimits,
    cpu_weight,
    group_name,
    kept_bytes,
    keyed,
    wall_bytes,
    written,
)

ALL = frozenset({"memory", "cpu", "cpuset"})
MIB = 1 << 20


def test_memory_max_is_above_the_charge_and_memory_high_a_little_below_memory_max() -> None:
    files = dict(written(JobLimits(memory_bytes=1000 * MIB, threads=3, cores=(0, 1, 3)), ALL))
    assert int(files["memory.max"]) == WALL * 1000 * MIB
    assert 0.9 * int(files["memory.max"]) < int(files["memory.high"]) < int(files["memory.max"])
    assert int(files["memory.high"]) % 4096 == 0
    assert files["memory.swap.max"] == "0"
    assert files["cpu.weight"] == "300"
    assert files["cpuset.cpus"] == "0-1,3"


@pytest.mark.parametrize("one", sorted(ALL))
def test_only_files_of_available_controllers_are_written(one: str) -> None:
    names = {name for name, _ in written(JobLimits(memory_bytes=MIB), frozenset({one}))}
    assert names
    assert {name.partition(".")[0] for name in names} == {one}


def test_without_a_charge_memory_has_no_limit() -> None:
    files = dict(written(JobLimits(), ALL))
    assert (files["memory.max"], files["memory.high"], files["cpuset.cpus"]) == ("max", "max", "")


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40))
def test_memory_max_is_never_below_what_a_job_has(charge: int, held: int) -> None:
    wall = wall_bytes(JobLimits(memory_bytes=charge), held)
    assert wall % 4096 == 0
    assert wall >= max(charge, held)
    assert wall <= max(WALL * charge, 1.05 * held) + 4096


@given(st.integers(1, 64), st.integers(0, 19))
def test_weight_grows_with_threads_and_falls_with_nice(threads: int, nice: int) -> None:
    weight = cpu_weight(threads, nice)
    assert 1 <= weight <= 10_000
    assert cpu_weight(threads + 1, nice) >= weight
    assert cpu_weight(threads, nice + 1) <= weight
    assert weight == pytest.approx(min(10_000, 100 * threads / 1.25**nice), abs=0.5)


@given(st.text(), st.integers(0, 1000))
def test_the_name_of_a_group_is_one_part_of_a_path(job: str, number: int) -> None:
    name = group_name(number, job)
    assert PurePosixPath(name).name == name
    assert name.startswith(f"elastichost-{number}-")
    assert len(name) < 120
    assert name.isascii()


def test_page_cache_does_not_count_as_kept_memory() -> None:
    stat = keyed("anon 100\nfile 5000\nkernel 7\nshmem 20\nfile_mapped 3\nodd line here\n")
    assert kept_bytes(stat) == 127
    assert kept_bytes({"anon": 1, "kernel_stack": 2, "pagetables": 3}) == 6
