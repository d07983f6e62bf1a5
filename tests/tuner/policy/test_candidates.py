"""The space of configurations contains exactly what the bounds allow; picks are spread over it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, as_array
from elastichost.tuner.policy.candidates import (
    Bounds,
    as_configurations,
    contains,
    count,
    enumerate_candidates,
    features_of,
    maximin,
    nearest_candidate,
    neighbours,
    repaired,
    within_cores,
)
from tests.effort import examples

ONE = Configuration(1, 1, 1, 1)


def brute_force(bounds: Bounds) -> list[Configuration]:
    """All configurations within the bounds, by the definition in the docstring of `Bounds`, in plain Python."""
    low, high = bounds.least, bounds.most
    found = []
    for numbers in itertools.product(
        range(low.workers, high.workers + 1),
        range(low.servers, high.servers + 1),
        range(low.worker_cores, high.worker_cores + 1),
        range(low.server_cores, high.server_cores + 1),
    ):
        workers, servers, worker_cores, server_cores = numbers
        if bounds.memory_bytes:
            needed = workers * bounds.worker_bytes + servers * bounds.server_bytes
            if needed > bounds.memory_bytes:
                continue
        if bounds.cores and bounds.share_cores:
            if workers * worker_cores > bounds.cores * bounds.oversubscription + 1e-9:
                continue
            if worker_cores > low.worker_cores and workers * worker_cores > bounds.cores:
                continue
            if max(worker_cores, server_cores) > bounds.cores:
                continue
        elif bounds.cores and workers * worker_cores + servers * server_cores > bounds.cores:
            continue
        found.append(Configuration(*numbers))
    return found


@st.composite
def all_bounds(draw: st.DrawFn) -> Bounds:
    def numbers() -> tuple[int, int]:
        low = draw(st.integers(1, 4))
        return low, low + draw(st.integers(0, 5))

    ranges = [numbers() for _ in range(4)]
    return Bounds(
        least=Configuration(*(low for low, _ in ranges)),
        most=Configuration(*(high for _, high in ranges)),
        cores=draw(st.sampled_from([0, 1, 2, 5, 16, 40])),
        share_cores=draw(st.booleans()),
        oversubscription=draw(st.sampled_from([0.5, 1.0, 1.1, 2.0])),
        worker_bytes=draw(st.sampled_from([0, 3, 10])),
        server_bytes=draw(st.sampled_from([0, 4])),
        memory_bytes=draw(st.sampled_from([0, 7, 30, 100])),
    )


@settings(max_examples=examples(200), deadline=None)
@given(all_bounds())
def test_enumeration_agrees_with_brute_force(bounds: Bounds) -> None:
    expected = brute_force(bounds)
    found = enumerate_candidates(bounds)
    assert list(as_configurations(found)) == expected
    assert expected == sorted(expected)
    assert count(bounds) == len(expected)
    assert contains(bounds, found).all()
    if expected:
        assert bounds.memory_of(found).max() <= (bounds.memory_bytes or math.inf)


@settings(max_examples=examples(100), deadline=None)
@given(all_bounds(), st.lists(st.tuples(*[st.floats(0.1, 60)] * 4), min_size=1, max_size=5))
def test_repaired_wishes_are_candidates(bounds: Bounds, wishes: list[tuple[float, ...]]) -> None:
    space = brute_force(bounds)
    if not space:
        with pytest.raises(ValueError, match="no configuration fits"):
            repaired(bounds, np.array(wishes))
        return
    assert set(as_configurations(repaired(bounds, np.array(wishes)))) <= set(space)

    def away(candidate: Configuration) -> float:
        pairs = zip(as_array([candidate])[0], wishes[0], strict=True)
        return math.sqrt(sum(math.log(have / want) ** 2 for have, want in pairs))

    assert away(nearest_candidate(bounds, wishes[0])) == pytest.approx(min(map(away, space)))
    by_steps = nearest_candidate(bounds, wishes[0], limit=0)
    assert by_steps in space
    assert min(map(away, as_configurations(neighbours(bounds, by_steps))), default=9.9) >= away(by_steps) - 1e-9


@settings(max_examples=examples(100), deadline=None)
@given(all_bounds(), st.data())
def test_a_candidate_is_its_own_nearest_and_its_neighbours_are_candidates(bounds: Bounds, data: st.DataObject) -> None:
    space = brute_force(bounds)
    if not space:
        return
    own = data.draw(st.sampled_from(space))
    assert nearest_candidate(bounds, as_array([own])[0].tolist()) == own
    assert nearest_candidate(bounds, as_array([own])[0].tolist(), limit=0) == own
    around = as_configurations(neighbours(bounds, own))
    assert set(around) <= set(space) - {own}
    assert len(set(around)) == len(around)
    for column, step in itertools.product(range(4), (-1, 1)):
        numbers = as_array([own])[0]
        numbers[column] += step
        assert (Configuration(*map(int, numbers)) in space) == (Configuration(*map(int, numbers)) in around)


def test_every_candidate_can_be_reached_by_steps() -> None:
    bounds = Bounds(ONE, Configuration(9, 5, 4, 3), cores=9, share_cores=False)
    space = set(as_configurations(enumerate_candidates(bounds)))
    reached, pending = {ONE}, [ONE]
    while pending:
        for found in as_configurations(neighbours(bounds, pending.pop())):
            if found not in reached:
                reached.add(found)
                pending.append(found)
    assert reached == space


def test_neighbours_exchange_processes_for_cores() -> None:
    bounds = Bounds(ONE, Configuration(8, 1, 8, 1), cores=8)
    around = as_configurations(neighbours(bounds, Configuration(8, 1, 1, 1)))
    assert Configuration(4, 1, 2, 1) in around
    assert Configuration(8, 1, 2, 1) not in around, "16 threads on 8 cores"


def test_a_large_space_is_counted_but_not_enumerated() -> None:
    assert count(Bounds(ONE, Configuration(1000, 1000, 100, 100))) == 10**10
    large = Bounds(ONE, Configuration(200, 100, 16, 16), cores=1000, share_cores=False)
    assert count(large) > 1_000_000
    with pytest.raises(ValueError, match=r"more than 1,000,000 .*nsga2"):
        enumerate_candidates(large)
    assert len(enumerate_candidates(Bounds(ONE, Configuration(32, 16, 16, 16)))) == 131_072


@pytest.mark.parametrize(
    "wrong",
    [
        {"least": Configuration(0, 1)},
        {"least": Configuration(5, 1)},
        {"cores": -1},
        {"memory_bytes": -1},
        {"oversubscription": 0.0},
        {"oversubscription": math.inf},
    ],
)
def test_invalid_bounds_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"invalid range|must be at least 0|must be a positive number"):
        Bounds(**{"least": ONE, "most": Configuration(4, 4), **wrong})  # type: ignore[arg-type]


# --- maximin picks ----------------------------------------------------------------------------------------------------


def spacing(features: np.ndarray) -> float:
    """The least distance between two rows."""
    pairs = itertools.combinations(features, 2)
    return min(float(np.linalg.norm(first - second)) for first, second in pairs)


def test_picks_are_new_and_as_far_away_as_possible() -> None:
    space = enumerate_candidates(Bounds(ONE, Configuration(4, 3, 2, 2)))
    chosen = space[[0, 7]]
    picks = maximin(space, chosen, 3)
    features = features_of(space)
    features = (features - features.min(axis=0)) / np.ptp(features, axis=0)
    seen = [0, 7]
    for pick in picks:
        away = [min(np.linalg.norm(row - features[index]) for index in seen) for row in features]
        assert away[pick] == pytest.approx(max(away))
        seen.append(int(pick))
    assert len(set(seen)) == 5


def test_picks_are_spread_within_a_factor_of_two_of_the_best() -> None:
    space = enumerate_candidates(Bounds(ONE, Configuration(4, 4, 1, 1)))
    features = features_of(space)[:, 2:]
    features = (features - features.min(axis=0)) / np.ptp(features, axis=0)
    best = max(spacing(features[list(four)]) for four in itertools.combinations(range(len(space)), 4))
    assert spacing(features[maximin(space, space[:0], 4)]) >= best / 2


def test_the_first_pick_is_in_the_middle_and_no_candidate_is_picked_twice() -> None:
    space = enumerate_candidates(Bounds(Configuration(1, 2), Configuration(16, 2)))
    assert as_configurations(space[maximin(space, space[:0], 1)]) == (Configuration(4, 2),)
    assert sorted(maximin(space, space[:4], 99)) == list(range(4, 16))
    assert len(maximin(space, space, 3)) == 0
    assert len(maximin(space[:0], space, 3)) == 0


def test_within_its_cores_a_job_may_exchange_them() -> None:
    own = Bounds(ONE, Configuration(9, 9, 9), share_cores=False)
    found = set(as_configurations(enumerate_candidates(within_cores(own, Configuration(3, 2)))))
    assert {Configuration(4, 1), Configuration(1, 4), Configuration(1, 3, 2)} <= found
    assert max(one.cores for one in found) == 5
    shared = Bounds(ONE, Configuration(16, 4, 8), cores=8, oversubscription=2.0)
    found = set(as_configurations(enumerate_candidates(within_cores(shared, Configuration(4, 1)))))
    assert {Configuration(4, 4), Configuration(2, 1, 2)} <= found, "PS need no cores of their own"
    assert max(one.workers * one.worker_cores for one in found) == 4
    wide = as_configurations(enumerate_candidates(within_cores(shared, Configuration(16, 1))))
    assert set(wide) == set(as_configurations(enumerate_candidates(shared))), "the bounds never become wider"
