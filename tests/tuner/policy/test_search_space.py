"""The configurations that a decision evaluates: all of a small space, and those around the best of a large one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, ConfigurationArray
from elastichost.tuner.policy.candidates import Bounds, contains, count, enumerate_candidates
from elastichost.tuner.policy.search_space import ALL_OF_THEM, Floats, Search, Worth, search_space
from tests.effort import examples

CLUSTER = Bounds(Configuration(1, 1), Configuration(32, 16, 8, 8), share_cores=False)
HOST = Bounds(Configuration(1, 1), Configuration(16, 4, 8), cores=8, oversubscription=2.0)


def peak_at(best: tuple[float, ...]) -> Worth:
    def worth(array: ConfigurationArray) -> Floats:
        return np.asarray(-np.abs(np.log(array) - np.log(best)).sum(axis=1))

    return worth


def test_a_small_space_is_enumerated() -> None:
    found = search_space(HOST, "auto", lambda array: np.zeros(len(array)), 0)
    assert np.array_equal(found, enumerate_candidates(HOST))


@settings(max_examples=examples(30), deadline=None)
@given(
    best=st.tuples(st.integers(1, 32), st.integers(1, 16), st.integers(1, 8), st.integers(1, 8)),
    cores=st.sampled_from([0, 64, 200]),
)
@example(best=(28, 5, 5, 5), cores=0)
def test_the_search_of_a_large_space_evaluates_the_best_configuration(best: tuple[int, ...], cores: int) -> None:
    bounds = Bounds(CLUSTER.least, CLUSTER.most, cores=cores, share_cores=False)
    worth = peak_at(best)
    found = search_space(bounds, "auto", worth, 0)
    everything = enumerate_candidates(bounds)
    if count(bounds) > ALL_OF_THEM:
        assert len(found) < len(everything) / 4
    assert contains(bounds, found).all()
    assert worth(found).max() >= worth(everything).max() - np.log(1.2)
    assert np.array_equal(found, np.unique(found, axis=0)), "sorted, without duplicates"
    if not cores:
        assert worth(found).max() == 0.0, "no bound blocks the steps to it"


def test_every_configuration_is_evaluated_once() -> None:
    valued: list[tuple[float, ...]] = []

    def worth(array: ConfigurationArray) -> Floats:
        valued.extend(map(tuple, array.tolist()))
        return np.asarray(-np.abs(np.log(array) - np.log((21, 11, 5, 7))).sum(axis=1))

    found = search_space(CLUSTER, "auto", worth, 0)
    assert sorted(valued) == list(map(tuple, found.tolist()))


@pytest.mark.parametrize("search", ["auto", "exact", "nsga2"])
def test_every_search_stays_within_the_bounds(search: Search) -> None:
    found = search_space(CLUSTER, search, peak_at((6, 2, 1, 1)), 3)
    assert len(found) and contains(CLUSTER, found).all()
    assert ((found == (6, 2, 1, 1)).all(axis=1)).any()


def test_nsga2_is_not_used_for_a_small_space() -> None:
    found = search_space(HOST, "nsga2", peak_at((6, 2, 1, 1)), 3)
    assert np.array_equal(found, enumerate_candidates(HOST))


def test_a_space_without_candidates_is_empty() -> None:
    impossible = Bounds(Configuration(4, 1, 4), Configuration(64, 16, 64, 64), cores=8, oversubscription=1.0)
    assert len(search_space(impossible, "auto", peak_at((1, 1, 1, 1)), 0)) == 0


def test_an_exact_search_of_too_many_candidates_raises() -> None:
    huge = Bounds(Configuration(1, 1), Configuration(200, 64, 32, 32), share_cores=False)
    with pytest.raises(ValueError, match="allow more than"):
        search_space(huge, "exact", lambda array: np.zeros(len(array)), 0)
