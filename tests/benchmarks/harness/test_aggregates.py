"""Aggregates of repeated measurements."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.aggregates import (
    Interval,
    Percentiles,
    Spread,
    bootstrap,
    percentile,
    percentiles_of,
    pooled,
    quantile,
    ratio,
    shown,
    spread_of,
    typical,
)


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (99, 10), (100, 10), (1, 1)])
def test_percentiles_are_measured_values(percent: float, expected: float) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == expected


def test_aggregates_have_one_typical_number_and_are_shown_with_their_range() -> None:
    assert spread_of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert percentiles_of([3.0, 1.0, 2.0]) == Percentiles(3, 2.0, 3.0, 3.0)
    assert quantile(0.5)([1.0, 2.0]) == 1.5
    told = {
        Spread(2.0, 1.0, 3.0): (2.0, "2.0 (1.0-3.0)"),
        Percentiles(3, 2.0, 3.0, 4.0): (2.0, "2.0 (p99 3.0, worst 4.0)"),
        Interval(2.0, 1.5, 2.5): (2.0, "2.0 (1.5-2.5)"),
        5: (5.0, "5.0"),
    }
    for found, (value, text) in told.items():
        assert (typical(found), shown(found, ".1f")) == (value, text)
    assert shown(None, ".1f") == "-"
    for aggregate in (spread_of, percentiles_of):
        with pytest.raises((ValueError, IndexError)):
            aggregate([])


def test_a_ratio_is_the_geometric_mean_of_pairs() -> None:
    found = ratio(np.array([2.0, 8.0]), np.array([1.0, 1.0]))
    assert found.mean == pytest.approx(4.0)
    assert found.low <= found.mean <= found.high


def test_bootstrap() -> None:
    values = np.random.default_rng(0).normal(5.0, 1.0, 400)
    found = bootstrap(values)
    assert found.mean == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 / 20, rel=0.15)
    same = bootstrap(np.full(20, 3.0))
    assert (same.low, same.mean, same.high) == (3.0, 3.0, 3.0)


def test_pooled_shares() -> None:
    assert pooled(np.zeros(3), np.zeros(3)) is None
    found = pooled(np.array([1.0, 0.0, 8.0]), np.array([1.0, 0.0, 9.0]))
    assert found is not None and found.mean == 0.9 and found.low <= 0.9 <= found.high == 1.0
