"""Shares of GPU memory: running workers together never exceed the device, whatever workers start and end."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.plan import Plan, ProcessSpec
from elastichost.resources import GpuDevice
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.placement.gpu_shares import most_sharing, share_of
from elastichost.tuner.placement.resize import resized_plan


def shares(living: dict[int, ProcessSpec]) -> dict[int, float]:
    """GPU -> the sum of the shares with which its running workers were started."""
    found = defaultdict[int, float](float)
    for spec in living.values():
        assert spec.gpu is not None
        found[spec.gpu] += spec.gpu_memory_fraction
    return found


@given(
    least=st.integers(1, 6),
    more=st.integers(0, 10),
    gpus=st.integers(1, 4),
    cores=st.integers(1, 12),
    is_open=st.booleans(),
    wishes=st.lists(st.integers(1, 16), max_size=8),
)
def test_the_sum_of_the_shares_never_exceeds_the_device(
    least: int, more: int, gpus: int, cores: int, is_open: bool, wishes: list[int]
) -> None:
    """New workers start before the removed ones have ended."""
    setting: str | tuple[int, int] = "auto" if is_open else (least, least + more)
    devices = tuple(GpuDevice(index, "a", 80 << 30) for index in range(gpus))
    plan = initial_plan(cores=tuple(range(cores)), workers=setting, gpus=devices, gpu_memory_fraction=0.9)
    most = most_sharing(setting, gpus)
    living = {spec.index: spec for spec in plan.workers}
    for wish in wishes:
        before, plan = plan, resized_plan(plan, "asked", workers=min(wish, most), gpus=tuple(range(gpus)))
        living |= {spec.index: spec for spec in started(before, plan)}
        assert all(share <= 0.9 + 1e-9 for share in shares(living).values())
        living = {spec.index: living[spec.index] for spec in plan.workers}
    assert all(share <= 0.9 + 1e-9 for share in shares(living).values())


def started(before: Plan, after: Plan) -> list[ProcessSpec]:
    known = {spec.index for spec in before.workers}
    return [spec for spec in after.workers if spec.index not in known]


@pytest.mark.parametrize(("setting", "expected"), [("auto", 8), (3, 3), ((1, 5), 5), ([2, 20], 20)])
def test_most_sharing_is_the_largest_number_of_workers(setting: str | int | tuple[int, int], expected: int) -> None:
    assert most_sharing(setting, 8) == expected


def test_without_gpus_the_share_is_one() -> None:
    assert share_of(0.9, 4, 0) == 1.0
    assert share_of(0.9, 4, 3) == 0.45
