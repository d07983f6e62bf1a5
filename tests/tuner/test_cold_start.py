"""The plan of a run without history: its numbers, its reason, and several hosts."""

from __future__ import annotations

import pytest

from elastichost.arena.layout import MAX_WORKERS
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.placement.resize import resized_plan


@pytest.mark.parametrize(
    ("workers", "servers", "cores", "expected"),
    [
        ("auto", "auto", 4, (4, 1, 1)),
        (2, "auto", 4, (2, 1, 1)),
        ("auto", 3, 1, (1, 3, 1)),
        ((1, 3), (2, 4), 8, (3, 2, 1)),
        ((6, 8), 1, 4, (6, 1, 1)),
    ],
)
def test_counts(workers: object, servers: object, cores: int, expected: tuple[int, int, int]) -> None:
    plan = initial_plan(cores=tuple(range(cores)), workers=workers, servers=servers)  # type: ignore[arg-type]
    assert (len(plan.workers), len(plan.servers), plan.workers[0].threads) == expected


def test_a_host_with_more_cores_than_a_run_may_have_workers() -> None:
    assert len(initial_plan(cores=tuple(range(384)), workers="auto").workers) == MAX_WORKERS
    assert len(initial_plan(cores=tuple(range(96)), workers="auto", hosts=3, capacity=(96, 96, 96)).workers) == 256


def test_the_reason_names_workers_cores_and_access() -> None:
    started = "cold start: 2 workers on 2 cores, one each; 1 parameter server (PS)"
    assert initial_plan(cores=(0, 1)).reason.startswith(started)
    assert "served" in initial_plan(cores=(0,), access="served").reason
    assert initial_plan(cores=(0,), access="auto").access == "direct"


def test_with_several_hosts_ps_are_spread_and_access_is_mixed() -> None:
    plan = initial_plan(cores=(0, 1), workers=2, servers=3, hosts=2)
    assert plan.access == "mixed"
    assert initial_plan(cores=(0, 1), workers=2, hosts=2, access="served").access == "served"
    assert [spec.host for spec in plan.servers] == [0, 1, 0]
    assert {spec.host for spec in plan.workers} == {0}
    grown = resized_plan(plan, "asked", servers=5, hosts=2)
    assert [spec.host for spec in grown.servers] == [0, 1, 0, 1, 0]
    assert [spec.host for spec in resized_plan(grown, "asked", servers=1, hosts=2).servers] == [0]
