"""The owners of buckets when PS join and leave: evenly many, with the fewest moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.sharding import NOBODY, ShardMap, moved_buckets, rebalanced_shard_map, without_moving


@st.composite
def shard_maps(draw: st.DrawFn) -> ShardMap:
    """Shard maps with any owners, also very uneven ones."""
    servers = draw(st.lists(st.integers(0, 63), min_size=1, max_size=6, unique=True))
    owner = st.sampled_from(servers)
    owners = draw(st.lists(st.lists(owner, min_size=1, max_size=16).map(tuple), min_size=1, max_size=6).map(tuple))
    return ShardMap(draw(st.integers(0, 9)), owners, draw(owner))


server_sets = st.lists(st.integers(0, 63), min_size=1, max_size=6, unique=True)


def counts(shard_map: ShardMap, servers: list[int]) -> list[int]:
    """The number of buckets of each PS."""
    return [len(shard_map.buckets_of(server)) for server in servers]


@given(shard_maps(), server_sets)
def test_buckets_are_divided_evenly_with_the_fewest_moves(before: ShardMap, servers: list[int]) -> None:
    after = rebalanced_shard_map(before, servers)
    assert after.servers() <= set(servers)
    assert [len(row) for row in after.owners] == [len(row) for row in before.owners]
    now = counts(after, servers)
    assert max(now) - min(now) <= 1
    held, buckets = sorted(counts(before, servers), reverse=True), sum(map(len, before.owners))
    least, odd = divmod(buckets, len(servers))
    stay = sum(min(count, least + (rank < odd)) for rank, count in enumerate(held))
    assert moved_buckets(before, after) == buckets - stay
    assert after.epoch == before.epoch


@given(shard_maps(), server_sets)
def test_the_result_depends_on_the_arguments_only_and_a_second_call_moves_nothing(
    before: ShardMap, servers: list[int]
) -> None:
    after = rebalanced_shard_map(before, servers)
    assert rebalanced_shard_map(before, servers[::-1]) == after
    assert rebalanced_shard_map(after, servers) == after


@given(shard_maps(), server_sets)
def test_the_dense_vector_stays_while_its_owner_stays(before: ShardMap, servers: list[int]) -> None:
    after = rebalanced_shard_map(before, servers)
    assert after.dense_owner == (before.dense_owner if before.dense_owner in servers else min(servers))


def test_each_table_is_spread() -> None:
    """When a second PS joins, it gets half of every table, not all buckets of some tables."""
    one = ShardMap(1, ((0,) * 16, (0,) * 16, (0,) * 4), 0)
    two = rebalanced_shard_map(one, (0, 1))
    assert [row.count(1) for row in two.owners] == [8, 8, 2]
    four = rebalanced_shard_map(two, (0, 1, 2, 3))
    assert all(3 <= row.count(server) <= 5 for row in four.owners[:2] for server in range(4))


def test_small_tables_spread_too() -> None:
    """Tables of one bucket cannot be halved, but not all of them stay with one PS."""
    assert counts(rebalanced_shard_map(ShardMap(1, ((0,),) * 7, 0), (0, 1)), [0, 1]) == [4, 3]


def test_buckets_that_change_their_owner_have_no_owner_meanwhile() -> None:
    before, after = ShardMap(3, ((0, 0, 1),), 0), ShardMap(3, ((0, 2, 1),), 1)
    between = without_moving(before, after)
    assert between == ShardMap(3, ((0, NOBODY, 1),), NOBODY)
    assert between.servers() == {0, 1}
    assert without_moving(before, before) == before


def test_without_ps_there_is_no_map() -> None:
    with pytest.raises(ValueError, match="at least one PS"):
        rebalanced_shard_map(ShardMap(1, ((0,),), 0), ())
