"""The cores and the memory that a process may use within the limits of its cgroup."""

from __future__ import annotations

import os

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.host import inventory as module
from elastichost.host.cgroup.limits import CgroupLimits
from elastichost.host.inventory import cores_of_quota, inventory, memory_of_host, seed_of


def test_containers_with_a_quota_do_not_crowd_on_the_first_cores() -> None:
    """64 cores, 16 containers of 4."""
    cores = tuple(range(64))
    parts = [cores_of_quota(cores, 4, seed_of("boot", f"pid:[{number}]")) for number in range(16)]
    assert all(len(part) == 4 for part in parts)
    busiest = max(sum(core in part for part in parts) for core in cores)
    assert busiest <= 5, "of 16 containers, so many want the same core"
    assert len(set[int]().union(*parts)) > 30


def test_the_part_of_a_container_goes_around() -> None:
    assert cores_of_quota((2, 3, 5, 7), 2, 0) == (2, 3)
    assert cores_of_quota((2, 3, 5, 7), 2, 3) == (2, 7)
    assert cores_of_quota((2, 3, 5, 7), 2, 6) == (5, 7)


def test_threads_of_one_physical_core_are_kept_apart() -> None:
    """Two threads for each physical core, numbered one after the other, or first all first ones."""
    beside = {core: f"{core & ~1}-{core | 1}" for core in range(8)}
    apart = {core: f"{core % 4},{core % 4 + 4}" for core in range(8)}
    for siblings in (beside, apart):
        for seed in range(8):
            part = cores_of_quota(tuple(range(8)), 4, seed, siblings)
            assert len({siblings[core] for core in part}) == 4
    assert cores_of_quota(tuple(range(8)), 6, 1, beside) == (1, 2, 3, 4, 5, 6)
    assert len(cores_of_quota(tuple(range(8)), 4, 3, dict.fromkeys(range(8), ""))) == 4, "siblings that are not known"


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 310), st.integers(0, 1 << 64))
def test_a_part_is_of_the_mask_and_as_large_as_the_quota(mask: set[int], count: int, seed: int) -> None:
    cores = tuple(sorted(mask))
    part = cores_of_quota(cores, count, seed, {core: str(core // 2) for core in cores})
    assert part == tuple(sorted(set(part)))
    assert set(part) <= mask
    assert len(part) == min(count, len(cores))
    assert part == cores_of_quota(cores, count, seed, {core: str(core // 2) for core in cores})


def test_a_seed_is_that_of_its_names() -> None:
    assert seed_of("a", "b") == seed_of("a", "b")
    assert len({seed_of("a", "b"), seed_of("ab"), seed_of("a", "c"), seed_of("ab", "")}) == 4


def test_the_limits_of_the_cgroup_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cgroup_limits", lambda: CgroupLimits(1 << 30, 0))
    host = inventory()
    assert host.memory_bytes == 1 << 30
    assert len(host.cores) == 1, "a quota of less than a core"
    assert set(host.cores) <= os.sched_getaffinity(0)
    assert inventory().cores == host.cores, "processes of a container find the same cores"
    assert memory_of_host(1 << 60, 4) == (1 << 30) * 9 // 10 // 4
    assert memory_of_host(1 << 60, 1) == 1 << 60


def test_without_limits_all_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cgroup_limits", CgroupLimits)
    host = inventory()
    assert set(host.cores) == os.sched_getaffinity(0)
    assert host.memory_bytes == psutil.virtual_memory().total
