"""The number of distinct ids, estimated from a beginning: data of known laws, and properties of the law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.memory.distinct_ids import IdLaw, expected, fit_ids
from tests.effort import examples

SEEN = 1 << 16


def drawn(ids: int, exponent: float, draws: int, seed: int = 0) -> np.ndarray:
    """Draws ranks of a power law with `ids` ids; int64 [draws]."""
    low, high, power = 0.5, ids + 0.5, 1.0 - exponent
    uniform = np.random.default_rng(seed).random(draws)
    return np.rint((low**power + uniform * (high**power - low**power)) ** (1 / power)).astype(np.int64)


def curve(ranks: np.ndarray, sightings: int = 1) -> np.ndarray:
    """The rising positions at which an id occurs for the `sightings`-th time."""
    order = np.argsort(ranks, kind="stable")
    starts = np.flatnonzero(np.diff(ranks[order], prepend=-1))
    counts = np.diff(np.append(starts, len(ranks)))
    return np.sort(order[starts[counts >= sightings] + sightings - 1])


def law_of(first: np.ndarray) -> IdLaw:
    return fit_ids([(n, int(np.searchsorted(first, n))) for n in (SEEN >> k for k in reversed(range(8)))])


@pytest.mark.parametrize(
    ("ids", "exponent"),
    [(1_000, 1.05), (20_000, 1.05), (300_000, 1.05), (300_000, 0.5), (2_000_000, 1.3), (50_000, 0.01)],
)
def test_the_ids_of_a_dataset_are_estimated_from_its_beginning(ids: int, exponent: float) -> None:
    first = curve(drawn(ids, exponent, 8 * SEEN))
    assert law_of(first).distinct(8 * SEEN) == pytest.approx(len(first), rel=0.2)


def test_a_table_that_is_exhausted_gets_no_more_ids() -> None:
    law = law_of(curve(drawn(500, 1.05, SEEN)))
    assert law.distinct(1000 * SEEN) == pytest.approx(500, rel=0.01)


def test_fewer_ids_occur_twice() -> None:
    ranks = drawn(300_000, 1.05, 4 * SEEN)
    twice = curve(ranks, 2)
    law = law_of(curve(ranks))
    assert law.distinct(4 * SEEN, 2) == pytest.approx(len(twice), rel=0.15)
    assert law.distinct(4 * SEEN, 2) < law.distinct(4 * SEEN)


def test_if_no_id_occurred_twice_every_draw_is_a_new_id() -> None:
    law = fit_ids([(1000, 1000), (2000, 2000)])
    assert law.distinct(50_000) == 50_000
    assert law.distinct(50_000, 2) == 0


def test_without_observations_no_ids_are_expected() -> None:
    assert fit_ids([(0, 0)]).distinct(1_000_000) == 0


@settings(deadline=None, max_examples=examples(40))
@given(
    ids=st.floats(1, 1e7),
    exponent=st.floats(0, 3),
    draws=st.lists(st.floats(0, 1e9), min_size=1, max_size=5),
    sightings=st.integers(1, 4),
)
def test_expected_ids_never_exceed_draws_or_ids(
    ids: float, exponent: float, draws: list[float], sightings: int
) -> None:
    draws.sort()
    found = expected(draws, ids, exponent, sightings)
    assert (found >= 0).all()
    assert (np.diff(found) >= -1e-6 * ids).all()
    assert (found <= np.minimum(np.array(draws) / sightings, ids) * (1 + 1e-6) + 1e-6).all()


def test_expected_ids_agree_with_the_exact_sum() -> None:
    ranks = np.arange(1, 50_001, dtype=np.float64)
    chances = ranks**-1.1 / (ranks**-1.1).sum()
    exact = float((1 - np.exp(-30_000 * chances)).sum())
    assert expected([30_000], 50_000, 1.1)[0] == pytest.approx(exact, rel=0.02)
