"""Bytes between hosts: the equations agree with a count over single processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.facts import Configuration, as_array
from elastichost.tuner.models.link_traffic import link_traffic


def counted(configuration: Configuration, capacity: tuple[int, ...], rows: float, dense: float) -> tuple[float, float]:
    """(mean bytes each way of a batch of one worker to other hosts, bytes per batch on the busiest link)"""
    plan = initial_plan(
        cores=(),
        workers=configuration.workers,
        servers=configuration.servers,
        hosts=len(capacity),
        capacity=capacity,
    )
    came, went = np.zeros(len(capacity)), np.zeros(len(capacity))
    for worker in plan.workers:
        for server in plan.servers:
            if server.host != worker.host:  # pulls and pushes use both directions of both links
                part = rows / len(plan.servers)
                for host in (worker.host, server.host):
                    came[host] += part
                    went[host] += part
        if worker.host != 0:
            for host in (worker.host, 0):
                came[host] += dense
                went[host] += dense
    assert (came == went).all()
    workers = len(plan.workers)
    return came.sum() / 2 / workers, came.max() / workers


@settings(deadline=None)
@given(
    capacity=st.lists(st.integers(1, 16), min_size=1, max_size=5),
    workers=st.integers(1, 20),
    servers=st.integers(1, 8),
    rows=st.floats(1.0, 1e8),
    dense=st.sampled_from([0.0, 1e3, 1e8]),
)
def test_the_equations_agree_with_the_count(
    capacity: list[int], workers: int, servers: int, rows: float, dense: float
) -> None:
    of = Configuration(workers, servers)
    moved, busiest = counted(of, tuple(capacity), rows, dense)
    found = link_traffic(as_array([of]), tuple(capacity), np.array([rows]), dense)
    assert found.moved_bytes[0] == pytest.approx(moved)
    assert found.moved_bytes[0] * found.link_share[0] == pytest.approx(busiest)


def test_two_hosts_have_one_link() -> None:
    found = link_traffic(as_array([Configuration(2, 2)]), (1, 1), np.array([1000.0]), 100.0)
    assert (found.moved_bytes[0], found.link_share[0]) == (pytest.approx(550.0), pytest.approx(1.0))


def test_on_one_host_there_is_no_traffic() -> None:
    found = link_traffic(as_array([Configuration(4, 2)]), (4,), np.array([1000.0]), 100.0)
    assert (found.moved_bytes[0], found.link_share[0]) == (0.0, 1.0)
