"""The knapsack is never overfilled, the exact choice is the best one, and the greedy choice is close to it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.placement import knapsack as module
from elastichost.tuner.placement.knapsack import GAP, Knapsack, exact, fits, greedy, possible, prices, value_of
from tests.effort import examples

Group = list[tuple[int, int, int]]  # value, need, need


def knapsack_of(groups: list[Group], room: tuple[float, float]) -> Knapsack:
    items = np.array([item for group in groups for item in group], dtype=np.float64)
    group = np.repeat(np.arange(len(groups)), [len(one) for one in groups])
    return Knapsack(items[:, 0].copy(), items[:, 1:].T.copy(), group, np.array(room))


def brute_force(knapsack: Knapsack) -> float:
    members = [np.flatnonzero(knapsack.group == one).tolist() for one in range(len(knapsack.starts))]
    every = (np.array(chosen) for chosen in itertools.product(*members))
    return max(value_of(knapsack, chosen) for chosen in every if fits(knapsack, chosen))


def searched(knapsack: Knapsack, known: np.ndarray) -> np.ndarray:
    found = exact(knapsack, known, prices(knapsack), 10_000, 30.0, 100_000)
    assert found is not None
    return found


@st.composite
def knapsacks(draw: st.DrawFn) -> tuple[Knapsack, np.ndarray]:
    """A knapsack, and a choice that fits: the first item of each group."""
    item = st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 9))
    groups = draw(st.lists(st.lists(item, min_size=1, max_size=5), min_size=1, max_size=5))
    spare = draw(st.tuples(st.integers(0, 15), st.integers(0, 15) | st.just(math.inf)))
    knapsack = knapsack_of(groups, (0.0, 0.0))
    least = knapsack.starts
    room = knapsack.need[:, least].sum(axis=1) + spare
    return Knapsack(knapsack.value, knapsack.need, knapsack.group, room), least


@settings(max_examples=examples(150), deadline=None)
@given(knapsacks())
def test_exact_is_the_best_greedy_is_not_worse_than_its_start_and_both_fit(case: tuple[Knapsack, np.ndarray]) -> None:
    knapsack, least = case
    quick = greedy(knapsack, least, prices(knapsack), np.arange(len(least)))
    best = searched(knapsack, quick)
    for chosen in (quick, best):
        assert fits(knapsack, chosen)
        assert knapsack.group[chosen].tolist() == list(range(len(least)))
    assert value_of(knapsack, least) <= value_of(knapsack, quick) <= value_of(knapsack, best) + 1e-9
    assert value_of(knapsack, best) >= brute_force(knapsack) * (1 - GAP)
    # also from a bad start, with which the bound rules out nothing
    assert value_of(knapsack, searched(knapsack, least)) >= brute_force(knapsack) * (1 - GAP)


@settings(max_examples=examples(100), deadline=None)
@given(knapsacks())
def test_impossible_items_are_in_no_choice_that_fits(case: tuple[Knapsack, np.ndarray]) -> None:
    knapsack, least = case
    assert possible(knapsack)[least].all()
    for item in np.flatnonzero(~possible(knapsack)):
        own = knapsack.group == knapsack.group[item]
        alone = Knapsack(np.where(own, 0.0, knapsack.value), knapsack.need, knapsack.group, knapsack.room)
        members = [
            [item] if own[start] else np.flatnonzero(alone.group == alone.group[start]) for start in alone.starts
        ]
        assert not any(fits(alone, np.array(chosen)) for chosen in itertools.product(*members))


@settings(max_examples=examples(100), deadline=None)
@given(knapsacks())
def test_with_one_resource_the_greedy_choice_is_within_one_upgrade_of_the_best(
    case: tuple[Knapsack, np.ndarray],
) -> None:
    given_, _ = case
    room = np.array([given_.room[0], math.inf])
    knapsack = Knapsack(given_.value, given_.need, given_.group, room)
    order = np.lexsort((-knapsack.value, knapsack.need[0], knapsack.group))
    least = order[knapsack.starts]
    quick = greedy(knapsack, least, np.array([1.0, 0.0]), np.arange(len(least)))
    upgrade = np.maximum.reduceat(knapsack.value, knapsack.starts) - knapsack.value[least]
    assert value_of(knapsack, quick) + upgrade.max() >= brute_force(knapsack) - 1e-9


def test_prices_are_the_worth_of_a_unit() -> None:
    # each group gains 6 with the first 2 units and 2 with the next 2; there are 6 units for three groups
    knapsack = knapsack_of([[(0, 0, 0), (6, 2, 0), (8, 4, 0)]] * 3, (6.0, math.inf))
    worth = prices(knapsack)
    assert 1.0 <= worth[0] <= 1.0001
    assert worth[1] == 0.0
    assert prices(knapsack_of([[(0, 0, 0), (6, 2, 0)]] * 3, (6.0, 1.0))).tolist() == [0.0, 0.0], "the room suffices"
    assert prices(knapsack_of([[(0, 1, 1)]], (1.0, 1.0))).tolist() == [0.0, 0.0], "no gain is possible"


def test_the_memory_is_counted_in_whole_bytes() -> None:
    """The tolerance of the solver is a millionth: 64 KiB of 64 GiB."""
    big = 2**36
    knapsack = knapsack_of(
        [[(0, 0, 0), (3, 1, big // 2)], [(0, 0, 0), (3, 1, big // 2 + 1)], [(0, 0, 0), (1, 1, 1)]], (9.0, big)
    )
    best = searched(knapsack, knapsack.starts)
    assert fits(knapsack, best)
    assert value_of(knapsack, best) >= 3.0


@pytest.mark.parametrize("limits", [{"most_items": 3}, {"node_limit": 0}, {"time_limit_s": 0.0}])
def test_limits_end_the_search(limits: dict[str, float]) -> None:
    rng = np.random.default_rng(0)
    groups = [
        [(int(value), int(need), int(value + need)) for value, need in rng.integers(1, 999, (20, 2))] for _ in range(30)
    ]
    knapsack = knapsack_of([[(0, 0, 0), *group] for group in groups], (5000.0, 9000.0))
    allowed = {"most_items": 10_000, "time_limit_s": 60.0, "node_limit": 100_000, **limits}
    assert exact(knapsack, knapsack.starts, prices(knapsack), **allowed) is None  # type: ignore[arg-type]


def of_one_resource(groups: int, items: int, room: int, seed: int) -> Knapsack:
    """A random knapsack as `decide` makes it: larger items have more value, and only the first resource is limited."""
    random = np.random.default_rng(seed)
    needs = np.sort([random.choice(np.arange(1, 40), items, replace=False) for _ in range(groups)], axis=1)
    values = random.uniform(0.5, 2.0, (groups, 1)) * needs ** random.uniform(0.4, 0.95, (groups, 1))
    found = [[(0, 0, 0)] for _ in range(groups)]
    knapsack = knapsack_of(found, (room, math.inf))
    value = np.concatenate([np.zeros((groups, 1)), values], axis=1).ravel()
    need = np.stack([np.concatenate([np.zeros((groups, 1)), needs], axis=1).ravel(), np.zeros(len(value))])
    return Knapsack(value, need, np.repeat(np.arange(groups), items + 1), knapsack.room)


@pytest.mark.parametrize("seed", range(6))
def test_one_resource_gives_the_choice_of_the_solver_or_a_better_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    knapsack = of_one_resource(8, 12, 60 + 20 * seed, seed)
    best = searched(knapsack, knapsack.starts)
    monkeypatch.setattr(module, "MOST_CELLS", -1)
    solved = searched(knapsack, knapsack.starts)
    assert fits(knapsack, best)
    assert value_of(knapsack, best) >= value_of(knapsack, solved) - 1e-9
    assert best.tolist() == solved.tolist() or value_of(knapsack, solved) < value_of(knapsack, best) * (1 - 1e-12)


@settings(max_examples=examples(100), deadline=None)
@given(knapsacks())
def test_with_one_resource_the_exact_choice_is_the_best_of_all(case: tuple[Knapsack, np.ndarray]) -> None:
    given_, least = case
    knapsack = Knapsack(given_.value, given_.need, given_.group, np.array([given_.room[0], math.inf]))
    best = exact(knapsack, least, np.zeros(2), 10_000, 30.0, 100_000)
    assert best is not None and fits(knapsack, best)
    assert value_of(knapsack, best) >= brute_force(knapsack) * (1 - GAP)


def test_a_room_that_is_too_small_for_every_choice_gives_none() -> None:
    knapsack = knapsack_of([[(1, 2, 0), (2, 3, 0)], [(1, 2, 0), (3, 4, 0)]], (3.0, math.inf))
    assert module._of_one_resource(knapsack) is None
    exactly = knapsack_of([[(1, 2, 0), (2, 3, 0)], [(1, 2, 0), (3, 4, 0)]], (6.0, math.inf))
    found = module._of_one_resource(exactly)
    assert found is not None and found.tolist() == [0, 3]
