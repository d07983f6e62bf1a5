"""What PS are asked for and what crosses links, counted one worker and one bucket at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.heat import BucketKey
from elastichost.tuner.host_heat import askers_of, busiest_link, keys_needed
from elastichost.tuner.rebalance import BOUND, imbalance, rebalanced

HOSTS = 3
ROW_BYTES = {0: 64, 1: 32}
places = st.lists(st.integers(0, HOSTS - 1), min_size=1, max_size=6)
buckets = st.dictionaries(
    st.tuples(st.integers(0, 1), st.integers(0, 7)),
    st.tuples(st.integers(0, 5), st.floats(0.0, 1e6)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(st.lists(st.integers(0, HOSTS - 1), min_size=6, max_size=6), places, buckets, st.booleans())
def test_what_is_needed_and_what_crosses_links(
    servers: list[int], workers: list[int], made: dict[BucketKey, tuple[int, float]], is_by_place: bool
) -> None:
    hosts, owners = dict(enumerate(servers)), {key: owner for key, (owner, _) in made.items()}
    asked = dict.fromkeys(owners, 0.0)
    through = dict.fromkeys(range(HOSTS), 0.0)  # rows that come or go; the gradients take the other way
    for worker in workers:
        for (table, bucket), (owner, keys) in made.items():
            is_there = hosts[owner] == worker
            if not (is_by_place and is_there):
                asked[table, bucket] += keys / len(workers)
            for host in () if is_there else (worker, hosts[owner]):
                through[host] += keys / len(workers) * ROW_BYTES[table]
    askers = askers_of(hosts, workers, is_by_place=is_by_place)
    needed = keys_needed(asked, owners, askers)
    for key, (owner, keys) in made.items():
        assert needed[key] == pytest.approx(keys if askers.share(owner) > 0 else 0.0)
    if all(askers.share(owner) > 0 for owner in owners.values()):
        speeds = {host: 1000.0 * (host + 1) for host in range(HOSTS)}
        most = max(used / speeds[host] for host, used in through.items())
        assert busiest_link(needed, owners, askers, ROW_BYTES, speeds) == pytest.approx(most)


def test_a_host_whose_workers_need_no_ps_may_own_more() -> None:
    """Two workers, three hosts with a PS each: what the third owns is asked for by both."""
    askers = askers_of({0: 0, 1: 1, 2: 2}, [0, 1], is_by_place=True)
    speeds = {server: 1.0 / askers.share(server) for server in askers.hosts}
    heat: dict[BucketKey, float] = {(0, bucket): 10.0 for bucket in range(50)}
    target = rebalanced(heat, dict.fromkeys(heat, 0), speeds)
    owned = [list(target.values()).count(server) for server in range(3)]
    assert imbalance(heat, target, speeds) <= BOUND
    assert owned[0] > 1.5 * owned[2] and owned[1] > 1.5 * owned[2]


def test_no_link_and_no_workers() -> None:
    owners: dict[BucketKey, int] = {(0, 0): 0}
    nobody = askers_of({0: 0}, [], is_by_place=True)
    assert nobody.share(0) == 1.0
    assert busiest_link({(0, 0): 1.0}, owners, nobody, ROW_BYTES, {}) == 0.0
    assert busiest_link({(0, 0): 1.0}, owners, nobody, ROW_BYTES, {1: 0.0}) == 0.0, "it was not measured"
