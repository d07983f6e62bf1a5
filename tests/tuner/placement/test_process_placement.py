"""Workers are dealt to hosts by their cores."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.placement.resize import resized_plan


@settings(deadline=None)
@given(capacity=st.lists(st.integers(1, 64), min_size=1, max_size=6), workers=st.integers(1, 100))
def test_no_host_has_more_for_each_core_than_another_would_have_with_one_more(
    capacity: list[int], workers: int
) -> None:
    plan = initial_plan(cores=(0,), workers=workers, hosts=len(capacity), capacity=tuple(capacity))
    given_to = Counter(spec.host for spec in plan.workers)
    for host, other in ((one, two) for one in range(len(capacity)) for two in range(len(capacity))):
        assert given_to[host] * capacity[other] <= (given_to[other] + 1) * capacity[host]


def test_a_worker_is_where_it_is_however_many_there_are() -> None:
    plan = initial_plan(cores=(0, 1), workers="auto", servers=3, hosts=3, capacity=(2, 4, 1))
    assert Counter(spec.host for spec in plan.workers) == {0: 2, 1: 4, 2: 1}
    fewer = resized_plan(plan, "a test", workers=3, hosts=3, capacity=(2, 4, 1))
    assert [spec.host for spec in fewer.workers] == [spec.host for spec in plan.workers[:3]]


def test_without_other_machines_all_are_on_the_first() -> None:
    assert {spec.host for spec in initial_plan(cores=(0, 1, 2), hosts=2).workers} == {0}


def test_nothing_new_is_on_a_host_that_is_gone_and_nobody_else_moves() -> None:
    plan = initial_plan(cores=(0, 1), workers=6, servers=3, hosts=3, capacity=(2, 2, 2))
    left = msgspec.structs.replace(plan, processes=tuple(spec for spec in plan.processes if spec.host != 1))
    grown = resized_plan(left, "a test", workers=6, servers=4, hosts=4, capacity=(2, 0, 2, 2))
    hosts = {(spec.role, spec.index): spec.host for spec in grown.processes}
    assert all(hosts[spec.role, spec.index] == spec.host for spec in left.processes)
    assert Counter(spec.host for spec in grown.workers) == {0: 2, 2: 2, 3: 2}
    assert Counter(spec.host for spec in grown.servers) == {0: 2, 2: 1, 3: 1}
