"""Workers are assigned to hosts in proportion to the cores."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.placement.resize import resized_plan


@settings(deadline=None)
@given(capacity=st.lists(st.integers(1, 64), min_size=1, max_size=6), workers=st.integers(1, 100))
def test_workers_per_core_are_balanced(capacity: list[int], workers: int) -> None:
    plan = initial_plan(cores=(0,), workers=workers, hosts=len(capacity), capacity=tuple(capacity))
    given_to = Counter(spec.host for spec in plan.workers)
    for host, other in ((one, two) for one in range(len(capacity)) for two in range(len(capacity))):
        assert given_to[host] * capacity[other] <= (given_to[other] + 1) * capacity[host]


def test_the_host_of_a_worker_does_not_depend_on_later_workers() -> None:
    plan = initial_plan(cores=(0, 1), workers="auto", servers=3, hosts=3, capacity=(2, 4, 1))
    assert Counter(spec.host for spec in plan.workers) == {0: 2, 1: 4, 2: 1}
    fewer = resized_plan(plan, "a test", workers=3, hosts=3, capacity=(2, 4, 1))
    assert [spec.host for spec in fewer.workers] == [spec.host for spec in plan.workers[:3]]


def test_without_other_machines_all_workers_are_on_host_0() -> None:
    assert {spec.host for spec in initial_plan(cores=(0, 1, 2), hosts=2).workers} == {0}


def test_a_lost_host_gets_no_new_workers_and_others_do_not_move() -> None:
    plan = initial_plan(cores=(0, 1), workers=6, servers=3, hosts=3, capacity=(2, 2, 2))
    left = msgspec.structs.replace(plan, processes=tuple(spec for spec in plan.processes if spec.host != 1))
    grown = resized_plan(left, "a test", workers=6, servers=4, hosts=4, capacity=(2, 0, 2, 2))
    hosts = {(spec.role, spec.index): spec.host for spec in grown.processes}
    assert all(hosts[spec.role, spec.index] == spec.host for spec in left.processes)
    assert Counter(spec.host for spec in grown.workers) == {0: 2, 2: 2, 3: 2}
    assert Counter(spec.host for spec in grown.servers) == {0: 2, 2: 1, 3: 1}
