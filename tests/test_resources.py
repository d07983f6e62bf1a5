"""Amounts of resources, and the settings of a job that limit memory, cores and GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.resources import GpuDevice, Resources, core_budget, core_list, gpu_budget, memory_budget_bytes


def test_amounts_add_and_subtract() -> None:
    whole, part = Resources(4, 1000, 10), Resources(1.5, 400, 10)
    assert whole - part + part == whole
    assert part.fits_in(whole)
    with pytest.raises(ValueError, match="does not fit"):
        part - whole


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("80%", 800_000_000),
        ("100 %", 10**9),
        ("500MB", 500_000_000),
        ("1KiB", 1024),
        ("1.5KB", 1500),
        (77, 77),
        ("4GiB", 10**9),
        (2 * 10**9, 10**9),
    ],
)
def test_memory(setting: str | int, expected: int) -> None:
    assert memory_budget_bytes(setting, 10**9) == expected


def test_other_texts_are_not_amounts_of_memory() -> None:
    with pytest.raises(ValueError, match="not an amount"):
        memory_budget_bytes("much", 10**9)


def test_cores_and_gpus() -> None:
    assert core_budget("all", (0, 2, 4)) == (0, 2, 4)
    assert core_budget(2, (0, 2, 4)) == (0, 2)
    assert core_budget((1, 9), (0, 2, 4)) == (0, 2, 4)
    gpus = (GpuDevice(0, "a", 1), GpuDevice(1, "b", 1))
    assert gpu_budget(0, gpus) == ()
    assert gpu_budget("auto", gpus) == gpus
    assert gpu_budget(1, gpus) == gpus[:1]


def test_the_usable_part_of_a_gpu_is_a_share_of_the_whole() -> None:
    assert GpuDevice(0, "a", 80).share == 1.0
    assert GpuDevice(0, "a", 20, total_bytes=80).share == 0.25


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cores_names_each_of_them_once(cores: set[int]) -> None:
    found: list[int] = []
    for part in core_list(cores).split(","):
        if part:
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    assert found == sorted(cores)
