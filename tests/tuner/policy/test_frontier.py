"""The frontier contains the undominated configurations; NSGA-II finds nearly all of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, ConfigurationArray
from elastichost.tuner.policy.candidates import Bounds, contains, enumerate_candidates
from elastichost.tuner.policy.frontier import Frontier, Prices, nsga2, pareto, resource_cost, thinned

ONE = Configuration(1, 1, 1, 1)
few = st.floats(0, 3) | st.integers(0, 3).map(float) | st.just(float("nan"))


def beaten(index: int, gain: np.ndarray, cost: np.ndarray) -> bool:
    """Whether another point dominates this one, by the definition."""
    no_worse = (gain >= gain[index]) & (cost <= cost[index])
    better = (gain > gain[index]) | (cost < cost[index])
    equal_before = (gain == gain[index]) & (cost == cost[index]) & (np.arange(len(gain)) < index)
    return bool((no_worse & better).any() or equal_before.any())


def hypervolume(gain: np.ndarray, cost: np.ndarray, least_gain: float, most_cost: float) -> float:
    """The area that the frontier of these points dominates, up to the point (`most_cost`, `least_gain`). Larger is
    better; the true frontier has the largest area."""
    inside = (gain > least_gain) & (cost < most_cost)
    kept = pareto(gain[inside], cost[inside])
    edges = np.append(cost[inside][kept], most_cost)
    return float(((gain[inside][kept] - least_gain) * np.diff(edges)).sum())


@given(st.lists(st.tuples(few, few), max_size=40))
def test_the_frontier_is_undominated_and_dominates_the_rest(points: list[tuple[float, float]]) -> None:
    gain, cost = np.array(points, dtype=np.float64).reshape(len(points), 2).T
    kept = pareto(gain, cost)
    usable = np.isfinite(gain) & np.isfinite(cost)
    assert set(kept) == {index for index in np.flatnonzero(usable) if not beaten(index, gain, cost)}
    assert (np.diff(cost[kept]) > 0).all()
    assert (np.diff(gain[kept]) > 0).all()


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="of the same length"):
        pareto(np.zeros(3), np.zeros(2))


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=1, max_size=20), st.data())
def test_more_points_never_have_less_area(points: list[tuple[float, float]], data: st.DataObject) -> None:
    gain, cost = np.array(points, dtype=np.float64).T
    some = data.draw(st.lists(st.integers(0, len(points) - 1), unique=True))
    whole = hypervolume(gain, cost, 0.0, 10.0)
    assert hypervolume(gain[some], cost[some], 0.0, 10.0) <= whole * (1 + 1e-12)
    kept = pareto(gain, cost)
    assert hypervolume(gain[kept], cost[kept], 0.0, 10.0) == pytest.approx(whole)


def test_cores_and_memory_have_a_price() -> None:
    array = np.array([[4.0, 2.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    assert resource_cost(array, 2**31, Prices(core=2.0, gib=0.5)).tolist() == [29.0, 5.0]
    assert resource_cost(array, np.array([0.0, 2**30]), Prices()).tolist() == [14.0, 2.13]


# --- NSGA-II ----------------------------------------------------------------------------------------------------------


def speed(array: ConfigurationArray) -> np.ndarray:
    """A speed with computing that saturates with cores, an exchange that the PS share, and PS that saturate with
    workers."""
    workers, servers, worker_cores, server_cores = array.T
    alone = 0.002 + 0.02 / np.minimum(worker_cores, 8) + 0.004 / servers + 0.0005
    return np.asarray(workers * 512 / (alone**4 + (workers * 0.006 / (servers * server_cores)) ** 4) ** 0.25)


SPACES = {
    "shared": Bounds(ONE, Configuration(32, 8, 8, 8), cores=64, oversubscription=1.5),
    "apart": Bounds(ONE, Configuration(64, 64, 16, 16), cores=64, share_cores=False),
    "memory": Bounds(ONE, Configuration(40, 20, 8, 8), worker_bytes=3, server_bytes=5, memory_bytes=100),
}


def gap(frontier: Frontier, bounds: Bounds) -> float:
    """The share of the true frontier's area that this frontier misses."""
    space = enumerate_candidates(bounds)
    cost = resource_cost(space)
    corner = 0.0, float(cost.max()) * 1.01
    return 1 - hypervolume(frontier.gain, frontier.cost, *corner) / hypervolume(speed(space), cost, *corner)


@pytest.mark.parametrize("name", sorted(SPACES))
def test_the_search_misses_less_than_a_hundredth_of_the_frontier(name: str) -> None:
    bounds = SPACES[name]
    frontier = nsga2(bounds, speed, resource_cost, seed=3, population=60, generations=40)
    assert contains(bounds, frontier.configurations).all()
    assert (frontier.configurations == np.rint(frontier.configurations)).all()
    assert frontier.gain.tolist() == speed(frontier.configurations).tolist()
    assert frontier.cost.tolist() == resource_cost(frontier.configurations).tolist()
    assert 0 <= gap(frontier, bounds) < 0.01


def test_the_search_is_better_than_random_draws() -> None:
    bounds = SPACES["apart"]
    drawn = nsga2(bounds, speed, resource_cost, seed=1, population=1200, generations=1)
    searched = nsga2(bounds, speed, resource_cost, seed=1, population=40, generations=30)
    assert gap(searched, bounds) < gap(drawn, bounds) / 2


def test_the_same_seed_gives_the_same_frontier_and_leaves_other_generators_alone() -> None:
    np.random.seed(7)
    expected = np.random.RandomState(7).rand()
    once, twice, other = (
        nsga2(SPACES["shared"], speed, resource_cost, seed=seed, population=20, generations=5) for seed in (4, 4, 5)
    )
    assert once.configurations.tolist() == twice.configurations.tolist()
    assert once.configurations.tolist() != other.configurations.tolist()
    assert np.random.rand() == expected


def test_start_configurations_are_never_lost() -> None:
    bounds = SPACES["apart"]
    space = enumerate_candidates(bounds)
    best = space[[int(np.argmax(speed(space)))]]
    frontier = nsga2(bounds, speed, resource_cost, seed=0, population=8, generations=1, start=best)
    assert frontier.gain[-1] == speed(best)[0]


def test_narrow_and_empty_spaces() -> None:
    one = nsga2(Bounds(ONE, ONE), speed, resource_cost, seed=0, population=10, generations=3)
    assert one.configurations.tolist() == [[1, 1, 1, 1]]
    line = nsga2(Bounds(ONE, Configuration(9, 1)), speed, resource_cost, seed=0, population=10, generations=5)
    assert len(line.gain) == 9
    with pytest.raises(ValueError, match="no configuration fits"):
        nsga2(Bounds(Configuration(4, 1), Configuration(9, 1), cores=2), speed, resource_cost, seed=0)


def test_configurations_without_a_finite_prediction_are_left_out() -> None:
    def partly(array: ConfigurationArray) -> np.ndarray:
        return np.where(array[:, 0] > 3, np.nan, speed(array))

    found = nsga2(Bounds(ONE, Configuration(9, 2)), partly, resource_cost, seed=0, population=20, generations=5)
    assert found.configurations[:, 0].max() == 3


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e3)), min_size=1, max_size=60), st.integers(2, 8))
def test_a_thinned_frontier_keeps_its_ends(points: list[tuple[float, float]], most: int) -> None:
    gain, cost = (np.array(column) for column in zip(*points, strict=True))
    whole, kept = pareto(gain, cost), thinned(gain, cost, most)
    assert len(kept) <= max(most, 1) and set(kept) <= set(whole)
    assert gain[kept[-1]] == gain[whole[-1]]
    if len(whole) > 1:
        assert cost[kept[0]] == cost[whole[0]]
