"""Faults of the source of training data: what they order, and when the run has recovered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.chaos.driver import ALL_FAULTS, ChaosReport
from elastichost.chaos.faults.process_faults import OpenFault, Recovered
from elastichost.chaos.faults.source_faults import SOURCE_FAULTS, SourceFault
from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.schedule import plan_faults, plan_stretches


def target(orders: list[Order] | None) -> Any:
    scene = SimpleNamespace(generation=1, fork_servers_lost=0, lost_hosts=())
    source = None if orders is None else SimpleNamespace(order=orders.append)
    applied = SimpleNamespace(newest_s=99.0, first_s={})
    return SimpleNamespace(scene=scene, source=source, applied=applied, now_s=lambda: 100.0, is_sync=False)


@pytest.mark.parametrize("fault", SOURCE_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_ordered_and_ends_when_a_batch_is_committed_after_it(fault: SourceFault) -> None:
    orders: list[Order] = []
    run = target(orders)
    struck = fault.strike(run, 0)
    assert struck is not None and struck.kills == 0
    assert [order.fault for order in orders] == [fault.fault]
    assert struck.recovered(run) is None
    run.applied.newest_s = 100.0 + fault.seconds + 1.0
    recovered = struck.recovered(run)
    assert recovered is not None and recovered.words == "training goes on"


def test_without_a_server_of_the_data_there_is_no_target() -> None:
    assert SOURCE_FAULTS[0].strike(target(None), 0) is None


def test_they_are_injected_only_where_they_are_chosen() -> None:
    weights = {fault.name: fault.weight for fault in ALL_FAULTS}
    planned = plan_faults(1, plan_stretches(600.0), 0.5, weights)
    assert planned and not {one.kind for one in planned} & {fault.name for fault in SOURCE_FAULTS}


def test_a_worker_that_starts_while_the_source_gives_no_bytes_is_not_timed() -> None:
    report = ChaosReport()
    for met in ([], ["stall-source"], ["slow-source"]):
        struck = OpenFault("kill-worker", "worker-0.1", "worker", 0.0, 1, 1, met=list(met))
        report.recovered.append((struck, Recovered("worker", 1.0 + len(met), "its successor trains")))
    assert report.times_s("worker") == [1.0, 2.0]
