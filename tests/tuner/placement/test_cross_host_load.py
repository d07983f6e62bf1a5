"""Requests to PS and traffic on links: the equations agree with a count over single workers and buckets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.placement.cross_host_load import keys_needed, requesters_of
from elastichost.tuner.placement.heat import BucketKey
from elastichost.tuner.placement.rebalance import BOUND, imbalance, rebalanced

HOSTS = 3
places = st.lists(st.tuples(st.integers(0, HOSTS - 1), st.floats(1.0, 100.0)), min_size=1, max_size=6)
buckets = st.dictionaries(
    st.tuples(st.integers(0, 1), st.integers(0, 7)),
    st.tuples(st.integers(0, 5), st.floats(0.0, 1e6)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(st.lists(st.integers(0, HOSTS - 1), min_size=6, max_size=6), places, buckets, st.booleans())
def test_needed_keys_and_link_traffic_agree_with_the_count(
    servers: list[int], workers: list[tuple[int, float]], made: dict[BucketKey, tuple[int, float]], is_by_place: bool
) -> None:
    hosts, owners = dict(enumerate(servers)), {key: owner for key, (owner, _) in made.items()}
    asked = dict.fromkeys(owners, 0.0)
    through = dict.fromkeys(range(HOSTS), 0.0)  # rows received or sent; gradients take the opposite direction
    total = sum(rate for _, rate in workers)
    for worker, rate in workers:
        for key, (owner, keys) in made.items():
            is_there = hosts[owner] == worker
            if not (is_by_place and is_there):
                asked[key] += keys * rate / total
            for host in () if is_there else (worker, hosts[owner]):
                through[host] += keys * rate / total
    askers = requesters_of(hosts, workers, is_by_place=is_by_place)
    needed = keys_needed(asked, owners, askers)
    for key, (owner, keys) in made.items():
        assert needed[key] == pytest.approx(keys if askers.share(owner) > 0 else 0.0)
    for host, used in through.items():
        own = sum(keys for owner, keys in made.values() if hosts[owner] == host)
        everything, share = sum(keys for _, keys in made.values()), askers.workers.get(host, 0.0)
        assert used == pytest.approx(share * everything + (1 - 2 * share) * own, abs=1e-6), (
            "the equation of the module docstring"
        )


def test_a_host_with_workers_may_own_more_buckets() -> None:
    """Two workers and three hosts with one PS each: both workers send requests to the PS of the third host."""
    askers = requesters_of({0: 0, 1: 1, 2: 2}, [(0, 50.0), (1, 50.0)], is_by_place=True)
    speeds = {server: 1.0 / askers.share(server) for server in askers.hosts}
    heat: dict[BucketKey, float] = {(0, bucket): 10.0 for bucket in range(50)}
    target = rebalanced(heat, dict.fromkeys(heat, 0), speeds)
    owned = [list(target.values()).count(server) for server in range(3)]
    assert imbalance(heat, target, speeds) <= BOUND
    assert owned[0] > 1.5 * owned[2] and owned[1] > 1.5 * owned[2]


def test_without_workers_no_host_has_a_share() -> None:
    for workers in ([], [(0, 0.0)]):
        nobody = requesters_of({0: 0}, workers, is_by_place=True)
        assert not nobody.workers and nobody.share(0) == 1.0
