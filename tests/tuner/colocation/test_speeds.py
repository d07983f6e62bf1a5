"""Speeds of jobs beside each other solve the concave problem; no policy exceeds the bound."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import minimize

from elastichost.tuner.colocation import speeds as model
from elastichost.tuner.colocation.facts import CPU, HostCapacity, JobDemand, PolicyName
from elastichost.tuner.colocation.settings import ColocationSettings
from elastichost.tuner.colocation.speeds import bound, corrected, demand_matrix, speeds, speeds_with, values, worth
from tests.effort import examples
from tests.tuner.colocation.fluid import run
from tests.tuner.colocation.jobs import GB, GPU_HOST, HOST, gpu_mode, job, mode, placed

Floats = npt.NDArray[np.float64]


def demands(most_jobs: int = 12, most_resources: int = 6) -> st.SearchStrategy[Floats]:
    shapes = st.tuples(st.integers(1, most_jobs), st.integers(1, most_resources))
    shares = st.one_of(st.just(0.0), st.just(1.0), st.floats(0.01, 1.0))
    return shapes.flatmap(lambda shape: arrays.arrays(np.float64, shape, elements=shares))


@settings(max_examples=examples(80), deadline=None)
@given(demands())
def test_speeds_are_shares_and_capacity_is_never_exceeded(demand: Floats) -> None:
    found = speeds(demand)
    assert found.shape == (len(demand),)
    assert (found > 0).all() and (found <= 1).all()
    assert (demand.T @ found <= 1 + 1e-9).all()


def two_similar_resources() -> Floats:
    """Two scarce resources that nearly the same jobs use: the ratio of their prices converges slowly."""
    demand = np.full((8, 5), 0.75)
    demand[0, 0], demand[0, 2], demand[1, 0], demand[2, 1] = 1.0, 0.0, 0.0, 0.8125
    return demand


@settings(max_examples=examples(50), deadline=None)
@given(demands())
@example(two_similar_resources())
def test_a_slowed_job_uses_a_full_resource(demand: Floats) -> None:
    """A job that uses no full resource has its full speed."""
    found = speeds(demand)
    full = demand.T @ found > 1 - 0.01
    for row, speed in zip(demand, found, strict=True):
        if speed < 0.99:
            assert (row[full] > 0).any()


@settings(max_examples=examples(50), deadline=None)
@given(arrays.arrays(np.float64, st.integers(1, 6), elements=st.floats(0, 1)))
def test_a_single_job_has_its_full_speed(row: Floats) -> None:
    assert speeds(row[None, :]) == pytest.approx([1.0])


@settings(max_examples=examples(40), deadline=None)
@given(arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats(0.01, 1.0)), st.floats(0.01, 1.0))
def test_on_one_resource_another_job_makes_no_job_faster(shares: Floats, another: float) -> None:
    with_it = speeds_with(shares[:, None], np.array([[another]]))[0]
    assert (with_it[:-1] <= speeds(shares[:, None]) + 1e-3).all()


def test_on_several_resources_another_job_may_make_a_third_faster() -> None:
    """The second job needs both resources. The third slows it on one, so the first gets more of the other."""
    demand = np.array([[1.0, 0.0], [0.5, 0.5]])
    before, after = speeds(demand), speeds(np.append(demand, [[0.0, 1.0]], axis=0))
    assert before == pytest.approx([0.618, 0.764], abs=1e-3)
    assert after == pytest.approx([2 / 3] * 3, abs=1e-3)


@settings(max_examples=examples(40), deadline=None)
@given(demands(6, 4))
def test_speeds_solve_the_concave_program(demand: Floats) -> None:
    """A different solver maximises the sum of log s - s subject to D.T s <= 1."""
    found = speeds(demand)

    def loss(s: Floats) -> float:
        return float((s - np.log(s)).sum())

    best = minimize(
        loss,
        np.full(len(demand), 0.5 / max(1.0, demand.sum(axis=0).max())),
        jac=lambda s: 1 - 1 / s,
        bounds=[(1e-6, 1.0)] * len(demand),
        constraints={"type": "ineq", "fun": lambda s: 1 - demand.T @ s, "jac": lambda s: -demand.T},
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-12},
    )
    assume(best.success)
    assert found == pytest.approx(best.x, abs=0.01)


def plain(demand: Floats, power: float, sweeps: int) -> tuple[Floats, float]:
    """The iteration without extrapolation, and the size of its last step."""
    stretch, moved = np.ones(demand.shape[1]), np.inf
    for _ in range(sweeps):
        before = stretch
        load = demand.T @ (1 / (1 + demand @ (stretch - 1)))
        stretch = np.maximum(1.0, stretch * np.maximum(load, 1e-300) ** power)
        moved = float(np.abs(stretch - before).max())
    return 1 / (1 + demand @ (stretch - 1)), moved


def hard_sets() -> list[Floats]:
    """Resources that are only just full, and jobs that keep several resources busy at once."""
    rng = np.random.default_rng(7)
    light = [rng.random((rng.integers(8, 33), 15)) * 0.25 for _ in range(10)]
    full = [rng.random((rng.integers(2, 5), 6)) ** 0.3 for _ in range(10)]
    return [*light, *full]


def test_sixty_sweeps_are_enough_where_sixty_plain_ones_are_not() -> None:
    ours, others, known = 0.0, 0.0, 0
    for demand in hard_sets():
        truth, moved = plain(demand, 1.2 / max(1.2, float(demand.sum(axis=1).max())), 6000)
        if moved < 1e-9:
            known += 1
            ours = max(ours, float(np.abs(speeds(demand) - truth).max()))
            others = max(others, float(np.abs(plain(demand, 1.0, 60)[0] - truth).max()))
    assert known >= 15
    assert ours < 0.004
    assert others > 0.02


def test_many_small_users_of_a_just_full_resource_get_their_share() -> None:
    assert speeds(np.full((100, 1), 0.0105)) == pytest.approx(np.full(100, 1 / 1.05), abs=1e-6)


@settings(max_examples=examples(40), deadline=None)
@given(demands(8, 4), st.integers(1, 5))
def test_newcomers_together_give_the_same_as_one_by_one(demand: Floats, count: int) -> None:
    newcomers = np.random.default_rng(count).random((count, demand.shape[1]))
    together = speeds_with(demand, newcomers)
    for row, newcomer in zip(together, newcomers, strict=True):
        assert row == pytest.approx(speeds(np.append(demand, newcomer[None, :], axis=0)), abs=0.01)


def test_an_estimate_is_exact_if_no_resource_is_full() -> None:
    demand, newcomers = np.full((3, 2), 0.2), np.full((4, 2), 0.3)
    assert (speeds_with(demand, newcomers, sweeps=3) == 1.0).all()
    rough = speeds_with(np.full((3, 1), 0.5), np.full((1, 1), 0.5), sweeps=9)
    assert rough[0] == pytest.approx(speeds(np.full((4, 1), 0.5)), abs=0.02)


@pytest.mark.parametrize("demand", [np.array([[-0.1]]), np.array([[np.nan]]), np.array([[np.inf]]), np.zeros(3)])
def test_invalid_demands_are_refused(demand: Floats) -> None:
    with pytest.raises(ValueError, match="demands"):
        speeds(demand)


def test_demand_rows_contain_the_host_once_and_each_gpu() -> None:
    jobs = [placed(job("c", mode(0.5, 0.2, 0.1))), placed(job("g", gpu_mode(0.7, 0.3)), device=1)]
    matrix = demand_matrix(jobs, 2)
    assert matrix.tolist() == [
        [0.5, 0.2, 0.1, 0, 0, 0, 0, 0, 0],
        [0.1, 0.05, 0.0, 0, 0, 0, 0.7, 0.3, 0.05],
    ]
    paused = [msgspec.structs.replace(jobs[0], is_paused=True), jobs[1]]
    assert demand_matrix(paused, 2)[0].tolist() == [0.0] * 9
    assert values(paused).tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="device 2 must be in the range -1 to 1"):
        demand_matrix([placed(job("g", gpu_mode()), device=2)], 2)


def test_a_slower_mode_is_worth_less() -> None:
    demand = job("a", mode(0.5, speed=40.0), mode(1.0, speed=100.0))
    assert values([placed(demand, 0), placed(demand, 1)]).tolist() == [0.4, 1.0]
    assert worth(np.array([0.4, 1.0]), np.array([0.5, 0.5])) == pytest.approx(0.7)


def test_corrections_make_no_job_faster_than_alone() -> None:
    found = corrected(np.array([0.5, 0.9, 0.5]), np.array([0.0, 0.4, -0.7]))
    assert found == pytest.approx([0.5, 1.0, 0.2483], abs=1e-4)


# --- the bound --------------------------------------------------------------------------------------------------------


def test_the_bound_names_its_binding_term() -> None:
    many = [job(f"j{at}", mode(0.5, 0.1), seconds=10.0) for at in range(6)]
    found = bound(many, HOST)
    assert (found.sequential_s, found.least_s, found.speedup) == (60.0, 30.0, 2.0)
    assert found.binding.text() == "cores: all jobs together need 30.0 s at full use"
    longest = bound([*many, job("long", mode(0.1), seconds=50.0)], HOST)
    assert longest.binding.text() == "the longest job, long, needs 50.0 s alone"
    assert longest.speedup == pytest.approx(110 / 50)
    full = bound([job(f"j{at}", mode(0.1, memory=6.0), seconds=10.0) for at in range(5)], HOST)
    assert full.binding.text() == "memory: all jobs together need 30.0 s with all of it in use"
    assert full.speedup == pytest.approx(10 / 6)


def test_the_bound_counts_the_least_that_any_mode_needs() -> None:
    """The slow mode needs half the cores for 20 s, the fast mode 0.8 of them for 10 s."""
    demand = job("a", mode(0.5, speed=50.0), mode(0.8, speed=100.0), seconds=10.0)
    found = bound([demand] * 4, HOST, shipped=[0] * 4)
    assert found.sequential_s == 80.0
    assert found.least_s == pytest.approx(4 * 8.0)
    assert found.speedup == pytest.approx(80 / 32)


def test_the_bound_of_several_gpus() -> None:
    jobs = [job(f"j{at}", gpu_mode(0.8), seconds=10.0) for at in range(6)]
    assert bound(jobs, GPU_HOST).binding.text() == "gpu: all jobs together need 24.0 s at full use over 2 GPUs"
    with pytest.raises(ValueError, match="needs a GPU"):
        bound(jobs, HOST)
    with pytest.raises(ValueError, match="the bound needs at least one job"):
        bound([], HOST)


@st.composite
def batches(draw: st.DrawFn) -> list[JobDemand]:
    share = st.floats(0.01, 1.0)
    made = []
    for at in range(draw(st.integers(1, 7))):
        modes = [
            mode(draw(share), draw(share), speed=draw(st.floats(10, 100)), memory=draw(st.floats(0.1, 8.0)))
            for _ in range(draw(st.integers(1, 3)))
        ]
        made.append(job(f"j{at}", *modes, seconds=draw(st.floats(1, 100))))
    return made


@settings(max_examples=examples(30), deadline=None)
@given(batches(), st.sampled_from(["complementary", "rmixer_type", "fifo", "random", "exclusive"]))
def test_no_policy_beats_the_bound(jobs: list[JobDemand], policy: PolicyName) -> None:
    room = HostCapacity(HOST.cores, 10 * GB)
    ran = run(jobs, room, ColocationSettings(policy=policy))
    assert set(ran.ended_s) == {one.job for one in jobs}
    assert ran.makespan_s >= bound(jobs, room).least_s * (1 - 1e-6)


def test_the_width_of_a_row() -> None:
    assert [model.width(gpus) for gpus in (0, 1, 4)] == [3, 6, 15]
    assert model.demand_row(mode(), CPU, 1).shape == (6,)
