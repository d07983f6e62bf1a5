"""Which buckets go to a host with room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastichost.sharding import even_shard_map, moved_buckets
from elastichost.specs import TableSpec
from elastichost.supervisor.memory_acting import relocated

TABLES = tuple(TableSpec(f"t{i}", i, (f"f{i}",), "int", rows=rows) for i, rows in enumerate((0, 0, 3000)))


@given(servers=st.integers(2, 8), hosts=st.integers(2, 3), share=st.floats(0, 1))
def test_a_share_of_every_table_goes_and_nothing_else_changes(servers: int, hosts: int, share: float) -> None:
    before = even_shard_map(TABLES, tuple(range(servers)), epoch=4)
    host_of = {server: server % min(hosts, servers) for server in range(servers)}
    after = relocated(before, host_of, 0, 1, share)
    assert (after.epoch, after.dense_owner) == (before.epoch, before.dense_owner)
    moved = 0
    for old_row, new_row in zip(before.owners, after.owners, strict=True):
        held = [old for old in old_row if host_of[old] == 0]
        gone = [(old, new) for old, new in zip(old_row, new_row, strict=True) if old != new]
        assert len(gone) == round(share * len(held))
        assert all(host_of[old] == 0 and host_of[new] == 1 for old, new in gone)
        moved += len(gone)
    assert moved_buckets(before, after) == moved


def test_they_are_dealt_to_all_ps_of_that_host() -> None:
    before = even_shard_map(TABLES, (0,), epoch=1)
    after = relocated(before, {0: 0, 1: 1, 3: 1}, 0, 1, 1.0)
    counts = {server: sum(row.count(server) for row in after.owners) for server in (0, 1, 3)}
    assert counts[0] == 0
    assert abs(counts[1] - counts[3]) <= 1
