"""Decaying heat, and assignments of buckets: never less balanced, with few moves, and deterministic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.tuner.placement.heat import BucketKey, HeatState, fold, heat_at
from elastichost.tuner.placement.rebalance import (
    BOUND,
    BalanceState,
    Rebalance,
    Stay,
    decide,
    imbalance,
    longest_first,
    rebalanced,
)

Load = dict[BucketKey, float]
Owners = dict[BucketKey, int]


def evenly(servers: int) -> dict[int, float]:
    return dict.fromkeys(range(servers), 1.0)


def moves(before: Owners, after: Owners) -> int:
    return sum(before[key] != after[key] for key in before)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Load, Owners, dict[int, float]]:
    servers = draw(st.integers(1, 5))
    keys = [(table, bucket) for table in range(draw(st.integers(1, 3))) for bucket in range(draw(st.integers(1, 12)))]
    heat = {key: float(draw(st.one_of(st.just(0), st.integers(1, 1000)))) for key in keys}
    return heat, {key: draw(st.integers(0, servers - 1)) for key in keys}, evenly(servers)


def test_heat_halves_and_adds_up() -> None:
    state = fold(HeatState(), {(0, 1): 8.0}, 10.0, 5.0)
    state = fold(state, {(0, 1): 1.0, (0, 2): 3.0}, 15.0, 5.0)
    assert state.heat == {(0, 1): 5.0, (0, 2): 3.0}
    assert heat_at(state, 25.0, 5.0) == {(0, 1): 1.25, (0, 2): 0.75}
    with pytest.raises(ValueError, match="must be positive"):
        heat_at(state, 0.0, 0.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1e6)), max_size=20))
def test_heat_is_between_the_last_report_and_the_sum_of_all(reports: list[tuple[float, float]]) -> None:
    state, now_s, total = HeatState(), 0.0, 0.0
    for later_s, count in reports:
        now_s += later_s
        total += count
        state = fold(state, {(0, 0): count}, now_s, 3.0)
        assert count <= state.heat[0, 0] <= total * (1 + 1e-9)


@given(cases())
def test_never_less_balanced_and_no_more_moves_than_a_fresh_assignment(
    case: tuple[Load, Owners, dict[int, float]],
) -> None:
    heat, owners, speeds = case
    after = rebalanced(heat, owners, speeds)
    assert after.keys() == owners.keys()
    assert set(after.values()) <= set(speeds)
    assert imbalance(heat, after, speeds) <= imbalance(heat, owners, speeds)
    assert moves(owners, after) <= moves(owners, longest_first(heat, owners, speeds))
    assert rebalanced(heat, owners, speeds) == after
    if imbalance(heat, owners, speeds) <= BOUND:
        assert after == owners
    if imbalance(heat, longest_first(heat, owners, speeds), speeds) <= BOUND:
        assert imbalance(heat, after, speeds) <= BOUND


def test_one_move_suffices_where_a_fresh_assignment_makes_many() -> None:
    heat = {(0, bucket): 10.0 for bucket in range(12)}
    owners = {(0, bucket): 0 if bucket < 7 else 1 for bucket in range(12)}
    after = rebalanced(heat, owners, evenly(2))
    assert moves(owners, after) == 1
    assert imbalance(heat, after, evenly(2)) == 1.0


def test_a_faster_server_gets_more() -> None:
    heat = {(0, bucket): 10.0 for bucket in range(12)}
    owners = {(0, bucket): bucket % 2 for bucket in range(12)}
    after = rebalanced(heat, owners, {0: 1.0, 1: 2.0})
    assert sorted(after.values()).count(1) == 8


def uneven(state: BalanceState, now_s: float, busy: float = 0.9) -> tuple[BalanceState, Rebalance | Stay]:
    heat = {(0, bucket): 10.0 for bucket in range(8)}
    owners = {(0, bucket): 0 if bucket < 6 else 1 for bucket in range(8)}
    return decide(state, heat, owners, evenly(2), busy, now_s)


def test_buckets_move_after_two_reports_for_a_busy_server_and_not_too_often() -> None:
    state, first = uneven(BalanceState(), 0.0)
    assert isinstance(first, Stay)
    assert (first.kind, first.is_news) == ("watching", False)
    state, second = uneven(state, 3.0)
    assert isinstance(second, Rebalance)
    assert second.moves == 2
    assert "1.50 times the mean load; moving 2 buckets reduces this to 1.00" in second.reason
    state, _ = uneven(state, 6.0)
    state, soon = uneven(state, 9.0)
    assert isinstance(soon, Stay)
    assert (soon.kind, soon.is_news) == ("too soon", True)
    state, again = uneven(state, 12.0)
    assert isinstance(again, Stay)
    assert not again.is_news, "reported once"
    _, later = uneven(state, 33.0)
    assert isinstance(later, Rebalance)


def test_buckets_of_idle_servers_do_not_move() -> None:
    state, _ = uneven(BalanceState(), 0.0, busy=0.3)
    _, decision = uneven(state, 3.0, busy=0.3)
    assert isinstance(decision, Stay)
    assert decision.kind == "idle"


def test_a_bucket_hotter_than_a_share_is_named() -> None:
    heat = {(0, 0): 90.0, **{(0, bucket): 1.0 for bucket in range(1, 11)}}
    owners = {key: 0 if key == (0, 0) else 1 for key in heat}
    state, _ = decide(BalanceState(), heat, owners, evenly(2), 0.9, 0.0)
    _, decision = decide(state, heat, owners, evenly(2), 0.9, 3.0)
    assert isinstance(decision, Stay)
    assert decision.kind == "one bucket"
    assert "bucket 0 of table 0 alone has 90% of the load" in decision.reason


def zipf_heat(tables: int, rows: int, buckets: int, *, is_sorted: bool) -> Load:
    """Requested keys per bucket for Zipf(1.05) rows. is_sorted: buckets are ranges of rows by popularity; else rows
    are hashed to buckets."""
    weight = np.arange(1, rows + 1) ** -1.05
    order = np.arange(rows) if is_sorted else np.random.default_rng(0).permutation(rows)
    sums = np.bincount(order * buckets // rows, weights=weight, minlength=buckets)
    return {(table, bucket): float(value) for table in range(tables) for bucket, value in enumerate(sums)}


def test_the_balance_that_moving_reaches_on_zipf_rows() -> None:
    """Buckets are assigned round-robin. Bucket 0 of every sorted table has almost all the load, and one PS owns all
    buckets 0."""
    heat = zipf_heat(26, 100_000, 8, is_sorted=True)
    owners = {key: key[1] % 4 for key in heat}
    before = imbalance(heat, owners, evenly(4))
    after = imbalance(heat, rebalanced(heat, owners, evenly(4)), evenly(4))
    assert before > 3.0
    assert after <= BOUND
    alone = zipf_heat(1, 100_000, 8, is_sorted=True)
    owners = {key: key[1] % 4 for key in alone}
    assert imbalance(alone, rebalanced(alone, owners, evenly(4)), evenly(4)) > 3.0, "buckets are not divided"
