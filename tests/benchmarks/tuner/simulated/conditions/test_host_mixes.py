"""Kinds of hosts follow each other, and a simulation with them has their cores."""

from __future__ import annotations

import pytest

from benchmarks.tuner.simulated.conditions.host_mixes import HOST_MIXES, hosts_of, shown_hosts
from benchmarks.tuner.simulated.plan import Plan


def test_kinds_of_hosts_alternate() -> None:
    assert [host.cores for host in hosts_of("three", 5)] == [32, 96, 128, 32, 96]
    assert {host.core_speed for host in hosts_of("same", 3)} == {1.0}
    assert {host.core_speed for host in hosts_of("two", 2)} == {0.8, 1.0}
    with pytest.raises(KeyError):
        hosts_of("none", 1)


@pytest.mark.parametrize("mix", sorted(HOST_MIXES))
def test_a_plan_has_these_hosts(mix: str) -> None:
    assert Plan(hosts=4, hosts_mix=mix).settings("static").hosts == hosts_of(mix, 4)
    assert "GiB" in shown_hosts(mix)
